// SPDX-License-Identifier: Apache-2.0

package route

import (
	"cmp"
	"fmt"
	"net/netip"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// rule is a policy rule, as far as plans describe it.
type rule struct {
	family                      uint8
	source, destination         netip.Prefix
	in                          string
	priority, mark, mask, table uint32
	target                      uint32 // the priority of the rule to go to; 0 for a rule with a table
	protocol                    uint8
	more                        extras // what no rule of a plan has
}

// foundRule is a policy rule with the kernel's message about it, without the netlink header.
type foundRule struct {
	rule

	raw     []byte
	nowhere bool // it leads to a rule that is not there
}

// ruleHeader is the size of struct fib_rule_hdr (linux/fib_rules.h).
const ruleHeader = 12

func (s *Socket) listRules() ([]foundRule, error) {
	var rules []foundRule
	err := s.each(unix.RTM_GETRULE, make([]byte, ruleHeader), func(message, header []byte, d *mdlayher.AttributeDecoder) {
		if family := header[0]; family == unix.AF_INET || family == unix.AF_INET6 { // multicast routing has others
			rules = append(rules, foundRule{decodeRule(family, header, d), message, header[8]&unix.FIB_RULE_UNRESOLVED != 0})
		}
	})
	return rules, err
}

func decodeRule(family byte, header []byte, d *mdlayher.AttributeDecoder) rule {
	r := rule{family: family, table: uint32(header[4])}
	var source, destination netip.Addr
	r.more.byte("tos", header[3])
	r.act(header[7], header[8])
	for d.Next() {
		switch kind := d.Type(); kind {
		case nl.FRA_DST:
			destination, _ = netip.AddrFromSlice(d.Bytes())
		case nl.FRA_SRC:
			source, _ = netip.AddrFromSlice(d.Bytes())
		case nl.FRA_IIFNAME:
			r.in = d.String()
		case nl.FRA_PRIORITY:
			r.priority = d.Uint32()
		case nl.FRA_FWMARK:
			r.mark = d.Uint32()
		case nl.FRA_FWMASK:
			r.mask = d.Uint32()
		case nl.FRA_TABLE:
			r.table = d.Uint32()
		case nl.FRA_GOTO:
			r.target = d.Uint32()
		case nl.FRA_PROTOCOL:
			r.protocol = d.Uint8()
		default:
			r.other(kind, d)
		}
	}
	r.destination = r.selector("length of a destination", destination, header[1])
	r.source = r.selector("length of a source", source, header[2])
	return r
}

// act notes what a rule does that no rule of a plan does.
func (r *rule) act(action, flags byte) {
	if action != unix.FR_ACT_GOTO {
		r.more.byte("action", action^unix.FR_ACT_TO_TBL)
	}
	r.more.byte("flags", flags&^(unix.FIB_RULE_UNRESOLVED|unix.FIB_RULE_IIF_DETACHED)) // there is no such rule or link at present
}

// other notes an attribute that no rule of a plan has.
func (r *rule) other(kind uint16, d *mdlayher.AttributeDecoder) {
	switch kind {
	case nl.FRA_SUPPRESS_IFGROUP, nl.FRA_SUPPRESS_PREFIXLEN:
		if d.Uint32() != ^uint32(0) {
			r.more.attribute(kind, d.Bytes())
		}
	case nl.FRA_PAD:
	default:
		r.more.attribute(kind, d.Bytes())
	}
}

// selector returns the prefix of an address, or the zero Prefix for a length of 0, which selects
// nothing.
func (r *rule) selector(name string, a netip.Addr, length byte) netip.Prefix {
	if length == 0 {
		return netip.Prefix{}
	}
	p := netip.PrefixFrom(a, int(length))
	if !p.IsValid() || a.Is4() != (r.family == unix.AF_INET) {
		r.more.byte(name, length)
		return netip.Prefix{}
	}
	return p
}

// object converts a policy rule to the library's type.
func (r rule) object() *netlink.Rule {
	object := netlink.NewRule()
	object.Family, object.Priority, object.Table, object.Protocol = int(r.family), int(r.priority), int(r.table), r.protocol
	object.Mark, object.Mask, object.IifName = r.mark, &r.mask, r.in
	if r.source.IsValid() {
		object.Src = network(r.source)
	}
	if r.destination.IsValid() {
		object.Dst = network(r.destination)
	}
	if r.target != 0 {
		object.Goto = int(r.target)
	}
	return object
}

// changeRule adds or deletes a policy rule by a function of the library.
func (s *Socket) changeRule(verb string, r rule, change func(*netlink.Rule) error) error {
	return s.namespace.Change(fmt.Sprintf("%s policy rule %d", verb, r.priority), func() error { return change(r.object()) })
}

func (c *Change) policyRule(r interception.PolicyRule) rule {
	wanted := rule{
		family: addressFamily(r.Family), source: r.Source, destination: r.Destination, in: string(r.In),
		priority: r.Priority, mark: uint32(r.Mark.Value), mask: uint32(r.Mark.Mask), target: r.Goto, protocol: c.owner.Protocol,
	}
	if r.Goto == 0 {
		wanted.table = cmp.Or(uint32(r.Table), unix.RT_TABLE_MAIN)
	}
	return wanted
}

// rule prepares a policy rule of the plan. Another program's rule that is the same serves the plan,
// and keeps its owner. Any other at the same place is an error: either rule would decide instead of
// the other.
func (c *Change) rule(r interception.PolicyRule) error {
	wanted, present, foreign := c.policyRule(r), false, false
	for _, have := range c.found.rules {
		switch {
		case have.apart(wanted):
		case have.protocol == c.owner.Protocol:
			present = present || have.rule == wanted
		case c.planHasRule(have.rule):
			foreign = foreign || have.sameRule(wanted)
		case have.sharesMark(wanted):
			return &interception.ApplyError{At: string(r.ID), Why: r.Why, Err: fmt.Errorf(
				"a policy rule of %s with priority %d is there, is not the owner's (protocol %d), and is about marks %#x/%#x: %w: choose another mark",
				r.Family, have.priority, have.protocol, have.mark, have.mask, unix.EEXIST)}
		case have.priority == wanted.priority:
			return &interception.ApplyError{At: string(r.ID), Why: r.Why, Err: fmt.Errorf(
				"a policy rule of %s with priority %d is there and is not the owner's (protocol %d): %w: choose another priority",
				r.Family, r.Priority, have.protocol, unix.EEXIST)}
		}
	}
	switch {
	case present:
	case foreign:
		c.left.FoundObjects = append(c.left.FoundObjects, textOf(r))
	default:
		c.steps = append(c.steps, step{
			at: r.ID, why: r.Why,
			do:   func() error { return c.socket.changeRule("add", wanted, netlink.RuleAdd) },
			undo: func() error { return gone(c.socket.changeRule("delete", wanted, netlink.RuleDel)) },
		})
	}
	return nil
}

// sameRule reports whether both rules are the same but for their owner.
func (r rule) sameRule(other rule) bool {
	r.protocol = other.protocol
	return r == other
}

// apart reports whether no packet meets both rules, by their families, prefixes and links. What
// plans cannot express may widen a rule within its family.
func (r rule) apart(other rule) bool {
	apart := func(a, b netip.Prefix) bool { return a.IsValid() && b.IsValid() && !a.Overlaps(b) }
	return r.family != other.family || r.more == "" && other.more == "" && (apart(r.source, other.source) ||
		apart(r.destination, other.destination) || r.in != "" && other.in != "" && r.in != other.in)
}

func (c *Change) planHasRule(have rule) bool {
	for r := range interception.ObjectsOf[interception.PolicyRule](c.plan) {
		if have.sameRule(c.policyRule(r)) {
			return true
		}
	}
	return false
}

// sharesMark reports whether both rules look at some bits together and want the same values: then
// packets of one rule also meet the other.
func (r rule) sharesMark(other rule) bool {
	both := r.mask & other.mask
	return both != 0 && (r.mark^other.mark)&both == 0
}

// staleRules adds a step for each policy rule of the owner that the plan lacks, or a duplicate.
func (c *Change) staleRules() {
	kept := map[rule]bool{}
	for _, have := range c.found.rules {
		if have.protocol == c.owner.Protocol && (!c.planHasRule(have.rule) || kept[have.rule]) {
			c.stale = append(c.stale, step{do: func() error { return gone(c.socket.send(unix.RTM_DELRULE, 0, have.raw)) }})
		}
		kept[have.rule] = true
	}
}

func addressFamily(f interception.Family) uint8 {
	if f == interception.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
