// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// script returns the input of iptables-restore that brings a family from one ruleset to another;
// nil when nothing differs. The kernel commits table by table, and each commit is atomic. A
// connection that both rulesets capture must not pass uncaptured between two commits. Therefore new
// tables come first, then the one that changes, and last those that the new ruleset lacks: at each
// instant all of the old or all of the new tables are in place, and the additional tables take
// nothing from them. Where that order does not suffice, a guard drops new connections meanwhile.
func script(from, to ruleset, prefix string) []string {
	kinds, safe := commitOrder(from, to)
	if len(kinds) == 0 {
		return nil
	}
	s := scripter{state: from}
	if safe && !from.guarded(prefix) {
		for _, kind := range kinds {
			s.commit(kind, to[kind])
		}
		return s.lines
	}
	s.commit(interception.Filter, from[interception.Filter].guard(prefix))
	for _, kind := range kinds {
		if kind == interception.Filter {
			s.commit(kind, to[kind].guard(prefix))
		} else {
			s.commit(kind, to[kind])
		}
	}
	s.commit(interception.Filter, to[interception.Filter])
	return s.lines
}

// scripter writes a script, and keeps the state after it.
type scripter struct {
	state ruleset
	lines []string
}

func (s *scripter) commit(kind interception.TableKind, to table) {
	lines, after := s.state[kind].change(to)
	if len(lines) == 0 {
		return
	}
	s.lines = append(append(append(s.lines, "*"+kind.String()), lines...), "COMMIT")
	s.state = s.state.with(kind, after)
}

// commitOrder returns the tables that differ, in the order to commit them, and whether a connection
// that both rulesets capture stays captured in between. Of a plan's first rules, those that write
// marks come last: what other tables do about the marks begins with them.
func commitOrder(from, to ruleset) (order []interception.TableKind, safe bool) {
	var gained, changed, lost []interception.TableKind
	for _, kind := range interception.TableKinds() {
		lines, _ := from[kind].change(to[kind])
		switch {
		case len(lines) == 0:
		case !from[kind].leadsIn():
			gained = append(gained, kind)
		case !to[kind].leadsIn():
			lost = append(lost, kind)
		default:
			changed = append(changed, kind)
		}
	}
	if !from.leadsIn() { // no connection is captured yet
		slices.SortStableFunc(gained, func(a, b interception.TableKind) int { return to.marking(a) - to.marking(b) })
		return gained, !interferes(gained[:max(len(gained)-1, 0)], from, to)
	}
	order = slices.Concat(gained, changed, lost)
	safe = len(order) < 2 || len(changed) < 2 && !interferes(slices.Concat(gained, lost), from, to)
	return order, safe
}

// interferes reports whether the tables beside a complete ruleset may take connections from it: by
// excluding packets from connection tracking, which nat needs, or by marks that other tables match.
func interferes(beside []interception.TableKind, from, to ruleset) bool {
	writes := false
	for _, kind := range beside {
		for _, line := range slices.Concat(from[kind].lines(), to[kind].lines()) {
			if strings.Contains(line, " --notrack") {
				return true
			}
			writes = writes || writesMark(line)
		}
		for _, other := range interception.TableKinds() {
			for _, line := range slices.Concat(from[other].lines(), to[other].lines()) {
				if writes && other != kind && strings.Contains(line, "mark ") && strings.Contains(line, "--mark ") {
					return true
				}
			}
		}
	}
	return false
}

// marking returns 1 if rules of a table write marks, and otherwise 0.
func (s ruleset) marking(kind interception.TableKind) int {
	if slices.ContainsFunc(s[kind].lines(), writesMark) {
		return 1
	}
	return 0
}

func writesMark(line string) bool {
	return strings.Contains(line, "MARK --") || strings.Contains(line, " --tproxy-mark ")
}

// guardName returns the name of the chain that drops new connections while no order of commits
// keeps them captured. A plan's chain names begin with a letter.
func guardName(prefix string) string { return prefix + "0-GUARD" }

// guardRule spares known connections: they are bound to the proxy, or to their former destination.
// The guard is needed also where all rules go. A packet may be on its way over the loopback device
// with a mark that only these rules know, and another dataplane's rules would let it pass.
const guardRule = `-m conntrack ! --ctstate RELATED,ESTABLISHED -m comment --comment "no connection begins while rules are replaced" -j DROP`

// guarded reports whether a guard is in place: a process that added it ended before it removed it.
func (s ruleset) guarded(prefix string) bool {
	_, there := s[interception.Filter].chain(guardName(prefix))
	return there
}

// guard returns the table with the guard as the first rule of every hook.
func (t table) guard(prefix string) table {
	name := guardName(prefix)
	guarded := table{strangers: t.strangers}
	for _, c := range t.chains {
		if c.name != name {
			guarded.chains = append(guarded.chains, c)
		}
	}
	guarded.chains = append(guarded.chains, chain{name, []string{guardRule}})
	for _, h := range interception.Filter.Hooks() {
		jump := hookRule{text: "-j " + name, owned: true, first: true}
		guardedHook := hook{name: strings.ToUpper(h.String()), rules: []hookRule{jump}}
		for _, r := range t.hook(guardedHook.name).owned() {
			if r.text != jump.text {
				guardedHook.rules = append(guardedHook.rules, hookRule{text: r.text, owned: true, first: r.first})
			}
		}
		guarded.hooks = append(guarded.hooks, guardedHook)
	}
	return guarded
}
