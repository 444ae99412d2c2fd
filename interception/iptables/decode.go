// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// decoded is one rule of a listing in the model of plans.
type decoded struct {
	match  interception.Match
	to     string // another program's ipset that has to have the destination; empty if none
	action interception.Action
	reset  bool // the action is Reject, but only the TCP reset of it
}

// decode decodes all words of a rule. The error names the first word without an equivalent in
// plans.
func decode(words []string, family interception.Family, prefix string) (decoded, error) {
	d := decoder{words: words, family: family, prefix: prefix}
	return d.decode()
}

// decodeForeign decodes a rule of another program, which may name that program's ipset.
func decodeForeign(words []string, family interception.Family, prefix string) (decoded, error) {
	d := decoder{words: words, family: family, prefix: prefix, foreign: true}
	return d.decode()
}

func (d *decoder) decode() (decoded, error) {
	for len(d.words) > 0 && d.action == nil {
		if err := d.next(); err != nil {
			return decoded{}, err
		}
	}
	switch {
	case d.action == nil:
		return decoded{}, errors.New("it does nothing")
	case len(d.words) > 0:
		return decoded{}, fmt.Errorf("%q is unknown after the target", d.words[0])
	}
	if err := d.finish(); err != nil {
		return decoded{}, err
	}
	return decoded{d.match, d.to, d.action, d.reset}, nil
}

// decoder takes words from the front.
type decoder struct {
	words   []string
	family  interception.Family
	prefix  string
	foreign bool // the rule is another program's
	negated bool
	module  string
	// tracking counts the options of the current match on connection tracking.
	tracking int

	match    interception.Match
	protocol interception.Protocol
	src, dst interception.Condition[interception.PortSet]
	flags    interception.Condition[interception.TCPFlags]
	socket   bool // the packet must have a socket
	to       string
	action   interception.Action
	reset    bool
}

// take takes a word that must exist.
func (d *decoder) take() (string, error) {
	if len(d.words) == 0 {
		return "", errors.New("a value is missing at the end")
	}
	word := d.words[0]
	d.words = d.words[1:]
	return word, nil
}

func (d *decoder) next() error {
	option, err := d.take()
	if err != nil {
		return err
	}
	switch option {
	case "!":
		if d.negated {
			return errors.New("it is negated twice")
		}
		d.negated = true
		return nil
	case "-m":
		return d.setModule()
	case "-j", "-g":
		return d.target(option)
	case "--socket-exists":
		if d.negated || d.module != "owner" {
			return errors.New("--socket-exists is negated, or of no owner")
		}
		d.socket = true
		return nil
	}
	value, err := d.take()
	if err != nil {
		return err
	}
	if err := d.condition(option, value); err != nil {
		return fmt.Errorf("%s %q: %w", option, value, err)
	}
	d.negated = false
	return nil
}

// setModule notes the module of the following options.
func (d *decoder) setModule() (err error) {
	if d.negated {
		return errors.New("a match is negated")
	}
	d.module, err = d.take()
	d.tracking = 0
	return err
}

var errUnknown = errors.New("no plan can say it")

// condition decodes an option that has one value, or begins with one.
func (d *decoder) condition(option, value string) error {
	switch option {
	case "-s", "-d", "-i", "-o":
		return d.place(option, value)
	case "-p":
		return d.setProtocol(value)
	case "--comment":
		if d.module != "comment" || d.negated {
			return errUnknown
		}
		return nil
	}
	switch d.module {
	case "tcp", "udp", "multiport":
		return d.transport(option, value)
	case "owner":
		return d.owner(option, value)
	case "mark", "connmark", "conntrack":
		return d.state(option, value)
	case "set":
		return d.liveSet(option, value)
	}
	return errUnknown
}

func (d *decoder) place(option, value string) (err error) {
	switch option {
	case "-i", "-o":
		field := &d.match.In
		if option == "-o" {
			field = &d.match.Out
		}
		name := strings.Replace(value, "+", "*", 1)
		return narrow(field, interception.Interfaces(interception.Interface(name)), d.negated, nil)
	}
	prefix, err := parseAddress(value, d.family)
	if err != nil {
		return err
	}
	field := &d.match.Src
	if option == "-d" {
		field = &d.match.Dst
	}
	return narrow(field, interception.Prefixes(prefix), d.negated, nil)
}

func (d *decoder) setProtocol(value string) error {
	protocols := map[string]interception.Protocol{"tcp": interception.ProtocolTCP, "udp": interception.ProtocolUDP}
	if d.negated || protocols[value] == 0 {
		return errUnknown
	}
	d.protocol = protocols[value]
	return nil
}

func (d *decoder) owner(option, value string) error {
	first, last, err := parseRange(value, "-", 32)
	if err != nil {
		return err
	}
	switch option {
	case "--uid-owner":
		return narrow(&d.match.UID, rangeOf[interception.UID](first, last), d.negated, interception.UIDSet.Union)
	case "--gid-owner":
		return narrow(&d.match.GID, rangeOf[interception.GID](first, last), d.negated, interception.GIDSet.Union)
	}
	return errUnknown
}

// state decodes a condition on a mark or on connection tracking.
func (d *decoder) state(option, value string) error {
	switch {
	case d.module == "mark" && option == "--mark":
		mark, err := parseMark(value)
		return errors.Join(err, narrow(&d.match.Mark, mark, d.negated, nil))
	case d.module == "connmark" && option == "--mark":
		mark, err := parseMark(value)
		return errors.Join(err, narrow(&d.match.ConnMark, mark, d.negated, nil))
	case d.module == "conntrack" && option == "--ctstate":
		states, err := parseStates(value)
		d.tracking++
		return errors.Join(err, narrow(&d.match.State, states, d.negated, nil), d.bothAsked())
	case d.module == "conntrack" && option == "--ctdir":
		d.tracking++
		return errors.Join(d.goes(value), d.bothAsked())
	}
	return errUnknown
}

func (d *decoder) goes(value string) error {
	directions := map[string]interception.Direction{
		"ORIGINAL": interception.DirectionOriginal, "REPLY": interception.DirectionReply,
	}
	direction, known := directions[value]
	if !known || d.negated || d.match.Direction != interception.AnyDirection {
		return errUnknown
	}
	d.match.Direction = direction
	return nil
}

// bothAsked refuses a match with both a direction and a state that a packet without a connection
// can have: in one match, unlike in two, such a packet meets the direction
// (net/netfilter/xt_conntrack.c, conntrack_mt).
func (d *decoder) bothAsked() error {
	if d.tracking < 2 {
		return nil
	}
	const without = interception.StateInvalid | interception.StateUntracked
	met := d.match.State.Set() & without
	if d.match.State.Negated() {
		met ^= without
	}
	if met != 0 {
		return errUnknown
	}
	return nil
}

// liveSet decodes a condition on an ipset, of the owner or of the program whose rule it is, and
// then the side of the packet.
func (d *decoder) liveSet(option, name string) error {
	side, err := d.take()
	if err != nil {
		return err
	}
	set, known := lower.ParseIPSet(interception.Owner(strings.ToLower(strings.TrimSuffix(d.prefix, "_"))), name)
	if d.foreign && !known && option == "--match-set" && side == "dst" && !d.negated && d.to == "" {
		d.to = name
		return nil
	}
	field, sided := map[string]*interception.Condition[interception.SetRef]{"src": &d.match.SrcSet, "dst": &d.match.DstSet}[side]
	if option != "--match-set" || !known || !sided || set.Family != d.family {
		return errUnknown
	}
	return narrow(field, interception.SetRef{Name: set.Name, Family: set.Family}, d.negated, nil)
}

// narrow adds a condition to a field. Two exclusions exclude what either excludes.
func narrow[S interception.Operand](field *interception.Condition[S], set S, negated bool, union func(S, S) S) error {
	switch {
	case !field.Present() && negated:
		*field = interception.Not(set)
	case !field.Present():
		*field = interception.Is(set)
	case negated && field.Negated() && union != nil:
		*field = interception.Not(union(field.Set(), set))
	default:
		return errors.New("a second condition on the same")
	}
	return nil
}

func (d *decoder) finish() error {
	l := interception.L4{}
	switch {
	case d.protocol == interception.ProtocolTCP:
		l = interception.TCP()
	case d.protocol == interception.ProtocolUDP:
		l = interception.UDP()
	case d.src.Present() || d.dst.Present() || d.flags.Present():
		return errors.New("ports or flags of no protocol")
	}
	d.match.L4 = with(withPorts(l, d.src, d.dst), d.flags, interception.L4.Flags, interception.L4.NotFlags)
	return d.finishOwner()
}

// finishOwner checks that conditions on the owner match only packets that have one, as plans' do.
func (d *decoder) finishOwner() error {
	excludes := d.match.UID.Negated() || d.match.GID.Negated()
	names := d.match.UID.Present() || d.match.GID.Present()
	switch {
	case excludes && !d.socket:
		return errors.New("a condition on the owner that a packet without a socket meets")
	case d.socket && !names: // no socket has the highest number
		d.match.UID = interception.Not(interception.UIDs(^interception.UID(0)))
	case d.socket && !excludes:
		return errors.New("--socket-exists beside an owner that a socket has")
	}
	return nil
}

func withPorts(l interception.L4, src, dst interception.Condition[interception.PortSet]) interception.L4 {
	return with(with(l, src, interception.L4.From, interception.L4.NotFrom), dst, interception.L4.To, interception.L4.NotTo)
}

// with adds a condition, if present, by one of two methods.
func with[S interception.Operand](
	l interception.L4, c interception.Condition[S], is, not func(interception.L4, S) interception.L4,
) interception.L4 {
	switch {
	case c.Negated():
		return not(l, c.Set())
	case c.Present():
		return is(l, c.Set())
	}
	return l
}
