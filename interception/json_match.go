// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// wireText is a text that JSON may leave out. A text that is there and empty, or null, differs from
// one that is left out: a list that turned out empty must not become "no condition".
type wireText struct {
	text    string
	present bool
}

// written returns a text that is there, unless it is "".
func written(text string) wireText { return wireText{text, text != ""} }

// MarshalJSON writes the text.
func (t wireText) MarshalJSON() ([]byte, error) { return json.Marshal(t.text) }

// UnmarshalJSON reads what is there.
func (t *wireText) UnmarshalJSON(data []byte) error {
	*t = wireText{present: true}
	return json.Unmarshal(data, &t.text)
}

// check refuses a text that is there and says nothing.
func (t wireText) check(member string) error {
	switch {
	case t.present && t.text == "":
		return fmt.Errorf("%s is empty: leave it out to match all, or leave out the rule to match nothing", member)
	case t.text == "!":
		return fmt.Errorf(`%s has nothing after the "!": leave it out to match all`, member)
	default:
		return nil
	}
}

// wireMatch has each condition as its set's text, after a "!" for Not.
type wireMatch struct {
	Family    wireText `json:"family,omitzero"`
	In        wireText `json:"in,omitzero"`
	Out       wireText `json:"out,omitzero"`
	Src       wireText `json:"src,omitzero"`
	Dst       wireText `json:"dst,omitzero"`
	SrcSet    wireText `json:"srcSet,omitzero"`
	DstSet    wireText `json:"dstSet,omitzero"`
	Protocol  wireText `json:"protocol,omitzero"`
	SrcPort   wireText `json:"sport,omitzero"`
	DstPort   wireText `json:"dport,omitzero"`
	Flags     wireText `json:"flags,omitzero"`
	UID       wireText `json:"uid,omitzero"`
	GID       wireText `json:"gid,omitzero"`
	Mark      wireText `json:"mark,omitzero"`
	ConnMark  wireText `json:"connmark,omitzero"`
	State     wireText `json:"state,omitzero"`
	Direction wireText `json:"direction,omitzero"`
}

func encodeMatch(m Match) wireMatch {
	w := wireMatch{
		In: m.In.wire(), Out: m.Out.wire(), Src: m.Src.wire(), Dst: m.Dst.wire(), SrcSet: m.SrcSet.wire(), DstSet: m.DstSet.wire(),
		SrcPort: m.L4.SrcPort().wire(), DstPort: m.L4.DstPort().wire(), Flags: m.L4.TCPFlags().wire(),
		UID: m.UID.wire(), GID: m.GID.wire(), Mark: m.Mark.wire(), ConnMark: m.ConnMark.wire(), State: m.State.wire(),
	}
	if m.Family != BothFamilies {
		w.Family = written(m.Family.String())
	}
	if m.Direction != AnyDirection {
		w.Direction = written(m.Direction.String())
	}
	if m.L4.Protocol() != AnyProtocol {
		w.Protocol = written(m.L4.Protocol().String())
	}
	return w
}

func (c Condition[S]) wire() wireText {
	switch {
	case !c.present:
		return wireText{}
	case c.negated:
		return wireText{"!" + c.set.String(), true}
	default:
		return wireText{c.set.String(), true}
	}
}

func (w wireMatch) decode(p *Plan) (Match, error) {
	var m Match
	var errs []error
	try := func(err error) { errs = append(errs, err) }
	try(decodeWord("family", &m.Family, w.Family, IPv4, IPv6))
	try(decodeWord("protocol", &m.L4.protocol, w.Protocol, ProtocolTCP, ProtocolUDP))
	try(decodeWord("direction", &m.Direction, w.Direction, DirectionOriginal, DirectionReply))
	try(decodeCondition("in", &m.In, w.In, parsePatterns))
	try(decodeCondition("out", &m.Out, w.Out, parsePatterns))
	try(decodeCondition("src", &m.Src, w.Src, ParsePrefixSet))
	try(decodeCondition("dst", &m.Dst, w.Dst, ParsePrefixSet))
	try(decodeCondition("srcSet", &m.SrcSet, w.SrcSet, p.parseSetRef))
	try(decodeCondition("dstSet", &m.DstSet, w.DstSet, p.parseSetRef))
	try(decodeCondition("sport", &m.L4.src, w.SrcPort, parseRanges[Port]))
	try(decodeCondition("dport", &m.L4.dst, w.DstPort, parseRanges[Port]))
	try(decodeCondition("flags", &m.L4.flags, w.Flags, parseTCPFlags))
	try(decodeCondition("uid", &m.UID, w.UID, parseRanges[UID]))
	try(decodeCondition("gid", &m.GID, w.GID, parseRanges[GID]))
	try(decodeCondition("mark", &m.Mark, w.Mark, parseMarkBits))
	try(decodeCondition("connmark", &m.ConnMark, w.ConnMark, parseMarkBits))
	try(decodeCondition("state", &m.State, w.State, func(text string) (ConnState, error) {
		return parseBits(text, StateNew, StateEstablished, StateRelated, StateInvalid, StateUntracked)
	}))
	return m, errors.Join(errs...)
}

func decodeCondition[S Operand](member string, into *Condition[S], from wireText, parse func(string) (S, error)) error {
	return decodeMember(member, into, from, func(text string) (Condition[S], error) {
		text, negated := strings.CutPrefix(text, "!")
		set, err := parse(text)
		return Condition[S]{set: set, present: true, negated: negated}, err
	})
}

func decodeWord[T fmt.Stringer](member string, into *T, from wireText, values ...T) error {
	return decodeMember(member, into, from, func(text string) (T, error) { return word(text, values...) })
}

// decodeMember stores what a member says, if it is there. Errors name the member and quote it.
func decodeMember[T any](member string, into *T, from wireText, parse func(string) (T, error)) error {
	err := from.check(member)
	if err != nil || !from.present {
		return err
	}
	value, err := parse(from.text)
	if err != nil {
		return fmt.Errorf("%s %s: %w", member, quoteBriefly(from.text), err)
	}
	*into = value
	return nil
}

// parseSetRef returns the reference for a text such as "@name".
func (p *Plan) parseSetRef(text string) (SetRef, error) {
	name, _ := strings.CutPrefix(text, "@")
	set, ok := p.Set(SetName(name))
	if !ok {
		return SetRef{}, fmt.Errorf("set %q is not in the plan, or comes after the rule", name)
	}
	return SetRef{set.Name, set.Family}, nil
}

func parsePatterns(text string) (InterfaceSet, error) {
	var names []Interface
	for name := range strings.SplitSeq(text, ",") {
		names = append(names, Interface(name))
	}
	return Interfaces(names...), nil // Validate checks the names
}

// parseRanges parses the text of a RangeSet.
func parseRanges[T ~uint16 | ~uint32](text string) (RangeSet[T], error) {
	if text == "*" {
		return RangesOf(Range[T]{0, ^T(0)}), nil
	}
	var ranges []Range[T]
	for element := range strings.SplitSeq(text, ",") {
		r, err := parseRange[T](element)
		if err != nil {
			return RangeSet[T]{}, err
		}
		ranges = append(ranges, r)
	}
	return RangesOf(ranges...), nil
}

// parseMarkBits parses "0x539" or "0x1/0xff".
func parseMarkBits(text string) (MarkBits, error) {
	value, mask, masked := strings.Cut(text, "/")
	if !masked {
		mask = "0xffffffff"
	}
	v, err := strconv.ParseUint(value, 0, 32)
	if err != nil {
		return MarkBits{}, err
	}
	m, err := strconv.ParseUint(mask, 0, 32)
	return MarkBits{Mark(v), Mark(m)}, err
}

// parseBits parses the words of some bits, separated by commas.
func parseBits[T interface {
	ConnState | TCPFlag
	fmt.Stringer
}](text string, all ...T) (set T, err error) {
	for element := range strings.SplitSeq(text, ",") {
		bit, err := word(element, all...)
		if err != nil {
			return 0, err
		}
		set |= bit
	}
	return set, nil
}

// parseTCPFlags parses "syn/fin,syn,rst,ack".
func parseTCPFlags(text string) (TCPFlags, error) {
	set, mask, found := strings.Cut(text, "/")
	if !found {
		return TCPFlags{}, errors.New(`want the flags that are set, a "/", and those that are looked at`)
	}
	s, err := parseTCPFlag(set)
	if err != nil {
		return TCPFlags{}, err
	}
	m, err := parseTCPFlag(mask)
	return TCPFlags{Mask: m, Set: s}, err
}

func parseTCPFlag(text string) (TCPFlag, error) {
	if text == TCPFlag(0).String() {
		return 0, nil
	}
	return parseBits(text, FlagFIN, FlagSYN, FlagRST, FlagPSH, FlagACK, FlagURG)
}
