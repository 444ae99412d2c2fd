// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"net/netip"
)

// PolicyRule is an object of a plan: it makes some packets use a routing table (ip-rule(8)). The
// packets are those that meet all of Source, Destination, In and Mark. At least one of the four
// must be set, unless Any is.
type PolicyRule struct {
	// ID is unique in the plan.
	ID RuleID
	// Family is the packets' family. It must be set.
	Family Family
	// Source is the prefix that the packets come from; the zero Prefix stands for all sources. A
	// packet whose socket has not chosen its source yet comes from no prefix.
	Source netip.Prefix
	// Destination is the prefix that the packets go to; the zero Prefix stands for all destinations.
	Destination netip.Prefix
	// In is the link that the packets arrive by, which need not exist yet; "" stands for all links.
	// What the sockets of the namespace send counts as arriving by lo.
	In Interface
	// Mark is the mark of the packets; the zero MarkBits stand for all marks.
	Mark MarkBits
	// Any makes the rule one for all packets of the family, for which Why is the reason. No other
	// selector may be set with it.
	Any bool
	// Table is the routing table to use. A packet to whose destination it has no route goes on to the
	// next rule.
	Table RoutingTable
	// Goto, unless 0, makes packets go on with the first rule of the family that has this priority,
	// instead of using a table. It must be higher than Priority. While there is no such rule, the
	// kernel passes over this one.
	Goto uint32
	// Priority orders the rules of a namespace, lowest number first. It must be set: the kernel's
	// choice would depend on the rules that other programs added before.
	Priority uint32
	// Why is the constant reason for the policy rule.
	Why string
	// From is the rule's provenance.
	From []Source
}

func (r PolicyRule) text() string {
	return fmt.Sprintf("policy rule %s priority %d%s%s", r.Family, r.Priority, r.selectors(), r.target())
}

// target returns where the rule leads, such as " table 100" or " goto 32766".
func (r PolicyRule) target() string {
	if r.Goto != 0 {
		return fmt.Sprintf(" goto %d", r.Goto)
	}
	return tableText(r.Table)
}

// selectors returns the conditions of the rule, such as " from 10.0.0.0/8 in eth0 mark 0x1".
func (r PolicyRule) selectors() string {
	words := ""
	if r.Source.IsValid() {
		words += " from " + r.Source.String()
	}
	if r.Destination.IsValid() {
		words += " to " + r.Destination.String()
	}
	if r.In != "" {
		words += " in " + string(r.In)
	}
	if !r.Mark.IsEmpty() {
		words += " mark " + r.Mark.String()
	}
	if r.Any {
		words += " any"
	}
	return words
}

func policyRuleError(r PolicyRule) error {
	switch {
	case r.Family != IPv4 && r.Family != IPv6:
		return errors.New("a policy rule is of one family: write one for each")
	case r.selectors() == "":
		return errors.New("a policy rule without a mark, a prefix or a link would send everything to its table: if it is to do that, set Any")
	case r.Any && r.selectors() != " any":
		return errors.New("a policy rule for any packet has no mark, prefix or link")
	case r.Goto != 0 && (r.Goto <= r.Priority || r.Table != 0):
		return fmt.Errorf("a policy rule that goes to rule %d has no table, and a lower priority than that", r.Goto)
	case r.Priority == 0:
		return errors.New("a policy rule needs a priority of its own")
	}
	errs := []error{
		selectorPrefixError("source", r.Source, r.Family), selectorPrefixError("destination", r.Destination, r.Family), markError(r.Mark),
	}
	if r.In != "" {
		errs = append(errs, r.In.Validate())
	}
	return errors.Join(errs...)
}

// selectorPrefixError refuses prefixes that the kernel would return in another form.
func selectorPrefixError(what string, p netip.Prefix, f Family) error {
	switch {
	case p == netip.Prefix{}:
		return nil
	case plainPrefixError(p) != nil:
		return fmt.Errorf("the %s: %w", what, plainPrefixError(p))
	case FamilyOf(p.Addr()) != f:
		return fmt.Errorf("the %s %s is not of the rule's family, %s", what, p, f)
	case p.Bits() == 0:
		return fmt.Errorf("the %s %s holds every address: leave it out", what, p)
	case p != p.Masked():
		return fmt.Errorf("the %s %s has bits beyond its length: write %s", what, p, p.Masked())
	}
	return nil
}
