// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// protocolAt is the place of a route's protocol in the kernel's message (struct rtmsg).
const protocolAt = 5

// Claim makes the routes and policy rules of r that belong to other programs the owner's. Each is
// there at every moment: the kernel replaces a route in one step, and has two policy rules, which
// do the same, until the other program's goes. What is gone by now stays away. Claim may be
// repeated.
func (s *Socket) Claim(owner Owner, r Record) error {
	found, err := s.scan()
	if err != nil {
		return err
	}
	o := observation{owner: owner, found: found, foreign: slices.Clone(r.FoundObjects)}
	for _, have := range found.routes {
		object, more := o.route(have.route)
		if have.protocol == owner.Protocol || !o.uses(object, more) {
			continue
		}
		raw := slices.Clone(have.raw)
		raw[protocolAt] = owner.Protocol
		if err := s.send(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, raw); err != nil {
			return fmt.Errorf("replace route %s of table %d: %w", have.destination, have.table, err)
		}
	}
	for _, have := range found.rules {
		object, more := o.rule(have)
		if have.protocol == owner.Protocol || !o.uses(object, more) {
			continue
		}
		if err := s.claimRule(have, found.rules, owner); err != nil {
			return fmt.Errorf("claim policy rule %d: %w", have.priority, err)
		}
	}
	return nil
}

// claimRule adds the rule as the owner's, unless an earlier call has, and deletes the other one.
// The kernel tells rules apart by their protocol, too.
func (s *Socket) claimRule(have foundRule, all []foundRule, owner Owner) error {
	own := have.rule
	own.protocol = owner.Protocol
	if !slices.ContainsFunc(all, func(f foundRule) bool { return f.rule == own }) {
		if err := s.changeRule("add", own, netlink.RuleAdd); err != nil {
			return err
		}
	}
	return gone(s.send(unix.RTM_DELRULE, 0, have.raw))
}
