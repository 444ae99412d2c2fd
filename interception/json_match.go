// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// wireMatch has each condition as its set's text, after a "!" for Not; "" for no condition.
type wireMatch struct {
	Family    string `json:"family,omitempty"`
	In        string `json:"in,omitempty"`
	Out       string `json:"out,omitempty"`
	Src       string `json:"src,omitempty"`
	Dst       string `json:"dst,omitempty"`
	SrcSet    string `json:"srcSet,omitempty"`
	DstSet    string `json:"dstSet,omitempty"`
	Protocol  string `json:"protocol,omitempty"`
	SrcPort   string `json:"sport,omitempty"`
	DstPort   string `json:"dport,omitempty"`
	Flags     string `json:"flags,omitempty"`
	UID       string `json:"uid,omitempty"`
	GID       string `json:"gid,omitempty"`
	Mark      string `json:"mark,omitempty"`
	ConnMark  string `json:"connmark,omitempty"`
	State     string `json:"state,omitempty"`
	Direction string `json:"direction,omitempty"`
}

func encodeMatch(m Match) wireMatch {
	w := wireMatch{
		In: m.In.wire(), Out: m.Out.wire(), Src: m.Src.wire(), Dst: m.Dst.wire(), SrcSet: m.SrcSet.wire(), DstSet: m.DstSet.wire(),
		SrcPort: m.L4.SrcPort().wire(), DstPort: m.L4.DstPort().wire(), Flags: m.L4.TCPFlags().wire(),
		UID: m.UID.wire(), GID: m.GID.wire(), Mark: m.Mark.wire(), ConnMark: m.ConnMark.wire(), State: m.State.wire(),
	}
	if m.Family != BothFamilies {
		w.Family = m.Family.String()
	}
	if m.Direction != AnyDirection {
		w.Direction = m.Direction.String()
	}
	if m.L4.Protocol() != AnyProtocol {
		w.Protocol = m.L4.Protocol().String()
	}
	return w
}

func (c Condition[S]) wire() string {
	switch {
	case !c.present:
		return ""
	case c.negated:
		return "!" + c.set.String()
	default:
		return c.set.String()
	}
}

func (w wireMatch) decode(p *Plan) (Match, error) {
	var m Match
	var errs []error
	try := func(err error) { errs = append(errs, err) }
	var err error
	if w.Family != "" {
		m.Family, err = word(w.Family, IPv4, IPv6)
		try(err)
	}
	if w.Protocol != "" {
		m.L4.protocol, err = word(w.Protocol, ProtocolTCP, ProtocolUDP)
		try(err)
	}
	if w.Direction != "" {
		m.Direction, err = word(w.Direction, DirectionOriginal, DirectionReply)
		try(err)
	}
	try(decodeCondition(&m.In, w.In, parsePatterns))
	try(decodeCondition(&m.Out, w.Out, parsePatterns))
	try(decodeCondition(&m.Src, w.Src, ParsePrefixSet))
	try(decodeCondition(&m.Dst, w.Dst, ParsePrefixSet))
	try(decodeCondition(&m.SrcSet, w.SrcSet, p.parseSetRef))
	try(decodeCondition(&m.DstSet, w.DstSet, p.parseSetRef))
	try(decodeCondition(&m.L4.src, w.SrcPort, parseRanges[Port]))
	try(decodeCondition(&m.L4.dst, w.DstPort, parseRanges[Port]))
	try(decodeCondition(&m.L4.flags, w.Flags, parseTCPFlags))
	try(decodeCondition(&m.UID, w.UID, parseRanges[UID]))
	try(decodeCondition(&m.GID, w.GID, parseRanges[GID]))
	try(decodeCondition(&m.Mark, w.Mark, parseMarkBits))
	try(decodeCondition(&m.ConnMark, w.ConnMark, parseMarkBits))
	try(decodeCondition(&m.State, w.State, func(text string) (ConnState, error) {
		return parseBits(text, StateNew, StateEstablished, StateRelated, StateInvalid, StateUntracked)
	}))
	return m, errors.Join(errs...)
}

func decodeCondition[S Operand](into *Condition[S], text string, parse func(string) (S, error)) error {
	if text == "" {
		return nil
	}
	text, negated := strings.CutPrefix(text, "!")
	set, err := parse(text)
	if err != nil {
		return fmt.Errorf("condition %q: %w", text, err)
	}
	*into = Condition[S]{set: set, present: true, negated: negated}
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
