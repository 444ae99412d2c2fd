// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// IPTablesRestore returns the plan's tables of one family in the format of iptables-restore(8) for
// IPv4 and ip6tables-restore(8) for IPv6. Load it with --noflush. Its lines are those that
// iptables-save(8) prints for the loaded rules.
//
// A chain's name is the owner's, '_' and the plan's name, in upper case: chain output of istio-cni
// is ISTIO-CNI_OUTPUT. Neither part can contain '_', so that no other owner's chain begins with
// ISTIO-CNI_, and names differ if owner or chain do.
//
// The text is for a namespace that has nothing of the owner, because -N creates the chains. Loading
// it again fails at the first table, which the tools commit as a whole, and changes nothing; -A
// therefore never adds a second copy of a hook's jumps. The jumps come after existing rules, or
// before them if an [interception.Entry] of that table and hook has a negative Offset. The tables
// are in the order in which they run in a hook. A table whose entries are all for the other family
// is left out, because nothing would lead into it. The text may be empty.
//
// Rules of the other family are left out. Where iptables takes one value and the plan has a list, a
// rule becomes several with the same comment, of which a packet matches at most one:
//
//   - ports: 15 slots to a multiport (a range takes two); excluded ports need only one rule
//   - prefixes, sets and interfaces: a rule for each member
//   - user and group ids: a rule for each range; excluded ids are several owners in one rule
//   - prefixes and interfaces of which none may match, and other long lists of that kind: a chain
//     of the owner that sorts them out, with a number in place of a name, such as ISTIO-CNI_1
//   - [interception.Reject]: one for TCP and one for the rest
//
// A rule that matches nothing, such as one with all ports excluded, is left out; no rule gets
// wider. One difference remains: a negated condition on the owner also matches packets from the
// kernel's own sockets, which have no owner. [interception.TProxyTo] needs no Drop after it:
// iptables itself drops the packet where no socket listens.
//
// A live set is an ipset, which the rules name and which has to be there before the text is loaded:
// that of set pods, of IPv4 addresses, is istio-cni_pods_4a.
//
// Links, addresses, sysctls, routes, policy rules and the sets themselves have no place in the
// text. The error is that of [interception.Plan.Validate], or wraps [interception.ErrUnsupported]
// for a plan with more than 65,536 lines, with chains that are nested too deep, or with a live set
// of the family whose name is too long for an ipset.
func IPTablesRestore(p *interception.Plan, family interception.Family) ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("render plan for iptables: %w", err)
	}
	if family != interception.IPv4 && family != interception.IPv6 {
		return nil, fmt.Errorf("render plan for iptables: %w: a text for %s: ask for IPv4 or IPv6", interception.ErrUnsupported, family)
	}
	sets, live, err := setsOf(p, family)
	if err != nil {
		return nil, fmt.Errorf("render plan for iptables: %w", err)
	}
	var b bytes.Buffer
	lines := 0
	for _, kind := range interception.TableKinds() {
		for table := range p.Tables() {
			if table.Kind != kind || !leadsInto(table, family) {
				continue
			}
			x := xtables{owner: p.Owner, family: family, sets: sets, live: live, kind: kind, lines: lines}
			if err := x.table(table); err != nil {
				return nil, fmt.Errorf("render plan for iptables: %w", err)
			}
			lines = x.lines
			x.write(&b)
		}
	}
	return b.Bytes(), nil
}

// setsOf returns the members of the plan's fixed sets, and the ipsets of its live ones.
func setsOf(p *interception.Plan, family interception.Family) (
	fixed map[interception.SetName]interception.PrefixSet, live map[interception.SetName]string, err error,
) {
	fixed, live = map[interception.SetName]interception.PrefixSet{}, map[interception.SetName]string{}
	for set := range p.Sets() {
		if !set.Live {
			fixed[set.Name] = set.Members
			continue
		}
		if live[set.Name], err = lower.IPSet(p.Owner, set); err != nil && set.Family == family {
			return nil, nil, err
		}
	}
	return fixed, live, nil
}

// leadsInto reports whether the family's packets may enter the table, even one without entries.
func leadsInto(t interception.Table, family interception.Family) bool {
	return len(t.Entries) == 0 || slices.ContainsFunc(t.Entries, func(e interception.Entry) bool { return isOf(e.Match, family) })
}

// isOf reports whether the match can meet a packet of the family.
func isOf(m interception.Match, family interception.Family) bool {
	f := m.EffectiveFamily()
	return f == interception.BothFamilies || f == family
}

// write writes the table: the chains, the rules, and then the jumps into them.
func (x *xtables) write(b *bytes.Buffer) {
	fmt.Fprintf(b, "*%s\n", x.kind)
	for _, c := range x.chains {
		fmt.Fprintf(b, "-N %s\n", c.name)
	}
	for _, c := range x.chains {
		for _, l := range c.lines {
			fmt.Fprintf(b, "-A %s %s\n", c.name, l.text)
		}
	}
	inserted := map[interception.Hook]int{}
	for _, e := range x.entries {
		hook := strings.ToUpper(e.hook.String())
		for _, l := range e.lines {
			if e.first {
				inserted[e.hook]++
				fmt.Fprintf(b, "-I %s %d %s\n", hook, inserted[e.hook], l.text)
			} else {
				fmt.Fprintf(b, "-A %s %s\n", hook, l.text)
			}
		}
	}
	b.WriteString("COMMIT\n")
}
