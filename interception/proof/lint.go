// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// FindingKind is the kind of a [Finding].
type FindingKind string

// The kinds.
const (
	// DeadRule: the rule can never match, though packets come to its chain.
	DeadRule FindingKind = "dead rule"
	// DeadEntry: the jump from a hook can never match.
	DeadEntry FindingKind = "dead entry"
	// UnreachedChain: no packet reaches the chain. Its rules are not reported one by one.
	UnreachedChain FindingKind = "unreached chain"
	// Deviates: the observed state has a part that a plan cannot express, and that may keep packets
	// from rules or lead them there.
	Deviates FindingKind = "deviation"
)

// Finding is a part of a plan without effect.
type Finding struct {
	// Kind is the kind of the finding.
	Kind FindingKind
	// Place is the rule or the entry; for a chain, its table and name; for a deviation, a rule that
	// is [interception.Opaque].
	Place Place
	// Shadows are, for a rule, the earlier rules that decide every packet it would match; empty if
	// no packet could meet its conditions and those of the jumps that lead to it. For a chain, they
	// are the jumps to it, which never match; empty without such a jump.
	Shadows []Place
}

// String returns the finding and its reason, for people:
//
//	nat/out-redirect[1] out.admin (tcp dport 15000 -> accept) never matches: out.redirect (tcp -> redirect to :15001) decides before
func (f Finding) String() string {
	var shadows []string
	for _, s := range f.Shadows {
		shadows = append(shadows, fmt.Sprintf("%s (%s)", s.Rule.ID, ruleText(s.Rule)))
	}
	by := strings.Join(shadows, ", ")
	switch {
	case f.Kind == Deviates:
		return fmt.Sprintf("%s: %v", f.Kind, f.Place.Rule.Action)
	case f.Kind == UnreachedChain && by == "":
		return fmt.Sprintf("chain %s/%s is never reached: nothing jumps to it", f.Place.Position.Table, f.Place.Position.Chain)
	case f.Kind == UnreachedChain:
		return fmt.Sprintf("chain %s/%s is never reached: what jumps to it never matches: %s", f.Place.Position.Table, f.Place.Position.Chain, by)
	case by == "":
		return fmt.Sprintf("%s (%s) never matches: no packet there meets its conditions", f.Place, ruleText(f.Place.Rule))
	case len(shadows) == 1:
		return fmt.Sprintf("%s (%s) never matches: %s decides before", f.Place, ruleText(f.Place.Rule), by)
	default:
		return fmt.Sprintf("%s (%s) never matches: together, %s decide before", f.Place, ruleText(f.Place.Rule), by)
	}
}

func ruleText(r interception.Rule) string {
	return fmt.Sprintf("%s -> %v", cmp.Or(r.Match.String(), "any"), r.Action)
}

// Lint returns rules and entries that can never match and chains that are never reached, in the
// order of the plan; nil if there are none. It examines each hook separately, for every packet that
// could reach it in any world: links, marks and flows need not be those of a sidecar, live sets may
// have any members, and the undecoded part of a rule may match or not. A finding is therefore dead
// everywhere, as long as no other owner's rules come before it.
//
// The errors are those of invalid rules ([interception.ErrPlan]), and [ErrTooLarge].
func Lint[R Rules](rules R, o Options) ([]Finding, error) {
	s, err := subjectOf(rules)
	if err != nil {
		return nil, fmt.Errorf("lint: %w", err)
	}
	l := &linter{engine: newEngine(newQuestion(o.maxNodes()), trace.Namespace{Plans: []*interception.Plan{s.plan}}, &members{})}
	l.links = append(linksOf(s.plan), loopback, "eth0")
	l.matched = make([]ref, len(l.rules))
	if len(l.links) > maxLinks {
		return nil, fmt.Errorf("lint: %w: rules name more than %d interfaces", ErrTooLarge, maxLinks-3)
	}
	for _, hook := range interception.Hooks() {
		var asked []event
		l.watch = func(r *rule, matched ref) {
			l.matched[r.number] = l.or(l.matched[r.number], matched)
			asked = append(asked, event{r, matched})
		}
		l.pass(hook, l.anything(hook))
		l.asked = append(l.asked, asked)
	}
	if l.err != nil {
		return nil, fmt.Errorf("lint: %w", l.err)
	}
	found := deviating(s)
	found = append(found, l.findings()...)
	if l.err != nil {
		return nil, fmt.Errorf("lint: %w", l.err)
	}
	return found, nil
}

// deviating returns the deviations of a state.
func deviating(s subject) []Finding {
	var found []Finding
	for _, text := range s.deviations {
		found = append(found, Finding{Kind: Deviates, Place: Place{Owner: s.plan.Owner, Rule: interception.Rule{
			ID: doubtID, Action: interception.Opaque{Text: text}, Why: doubtWhy,
		}}})
	}
	return found
}

// linter is an engine that notes which rules matter.
type linter struct {
	*engine
	matched []ref
	asked   [][]event // of each hook, in order
}

// event records that a rule decided packets.
type event struct {
	*rule
	matched ref
}

// anything returns every packet that may come to a hook.
func (l *linter) anything(hook interception.Hook) threads {
	all := ^interception.Mark(0)
	s := state{src: own(ownSrc), dst: own(ownDst), sent: own(ownSrc), taker: nobody, mark: mark{own: all}}
	switch hook {
	case interception.Prerouting, interception.Input:
		s.in = anyLink
	case interception.Forward:
		s.in, s.out = anyLink, anyLink
	case interception.Output, interception.Postrouting:
		s.out, s.owner = anyLink, mayHaveOwner
	}
	classes := inRanges(l.diagram, l.in, []interception.Range[uint32]{{First: 0, Last: uint32(len(l.links) - 1)}})
	outs := inRanges(l.diagram, l.out, []interception.Range[uint32]{{First: 0, Last: uint32(len(l.links) - 1)}})
	flags := l.ite(l.variable(l.udp), l.equals(l.flags, 0), always)
	where := l.and(classes, outs, flags)
	var ts threads
	if hook == interception.Prerouting || hook == interception.Output {
		l.add(&ts, thread{s, where}) // to be tracked
	}
	if hook == interception.Output {
		return ts
	}
	settled := hook == interception.Prerouting // it went through nat already, and came back
	for _, f := range []flow{
		{kind: knownFlow, mark: mark{flow: all}, dstSettled: true, srcSettled: true, confirmed: true},
		{kind: newFlow, mark: mark{flow: all}, dstSettled: true, srcSettled: settled},
		{untracked: true},
		{},
	} {
		s.flow = f
		l.add(&ts, thread{s, where})
	}
	return ts
}

// findings walks through the plan.
func (l *linter) findings() []Finding {
	var found []Finding
	for _, t := range l.tables {
		found = append(found, l.dead(DeadEntry, t, t.entries)...)
		for plan := range l.net.Plans[0].Tables() {
			if plan.Kind == t.kind {
				for _, c := range plan.Chains {
					found = append(found, l.inChain(t, c.Name)...)
				}
			}
		}
	}
	return found
}

func (l *linter) inChain(t table, name interception.ChainName) []Finding {
	var jumps []Place
	for _, r := range l.callers(&rule{plan: l.net.Plans[0], kind: t.kind, chain: name}) {
		if l.matched[r.number] != never {
			return l.dead(DeadRule, t, t.chains[name])
		}
		jumps = append(jumps, r.place())
	}
	chain := Place{Owner: l.net.Plans[0].Owner, Position: interception.Position{Table: t.kind, Chain: name}}
	return []Finding{{Kind: UnreachedChain, Place: chain, Shadows: jumps}}
}

// dead returns the rules that never match.
func (l *linter) dead(kind FindingKind, t table, rules []*rule) []Finding {
	var found []Finding
	for _, r := range rules {
		if _, opaque := r.Action.(interception.Opaque); !opaque && l.matched[r.number] == never {
			found = append(found, Finding{Kind: kind, Place: r.place(), Shadows: l.shadows(t, r)})
		}
	}
	return found
}

// shadows returns the rules that decide the packets which a rule would match: one rule that decides
// all of them, else those that decide some.
func (l *linter) shadows(t table, dead *rule) []Place {
	var found []Place
	for i, asked := range l.asked {
		at := slices.IndexFunc(asked, func(e event) bool { return e.rule == dead })
		if at < 0 {
			continue
		}
		before := slices.DeleteFunc(slices.Clone(asked[:at]), func(e event) bool { return !l.hides(t, e.rule, dead) })
		for _, r := range l.deciding(t, before, dead, interception.Hooks()[i]) {
			place := r.place()
			if !slices.ContainsFunc(found, func(p Place) bool { return p.String() == place.String() }) {
				found = append(found, place)
			}
		}
	}
	return found
}

// deciding is shadows for one hook, among the rules evaluated before.
func (l *linter) deciding(t table, before []event, dead *rule, hook interception.Hook) []*rule {
	wanted := l.alone(t, dead, hook)
	if wanted == never {
		return nil
	}
	for _, e := range before {
		if e.kind == t.kind && l.without(wanted, l.alone(t, e.rule, hook)) == never {
			return []*rule{e.rule}
		}
	}
	var some []*rule
	for _, e := range before {
		if l.and(wanted, e.matched) != never {
			wanted = l.without(wanted, e.matched)
			some = append(some, e.rule)
		}
	}
	return some
}

// alone returns the packets that a rule would match in the hook if no earlier rule decided.
func (l *linter) alone(t table, r *rule, hook interception.Hook) ref {
	all := never
	for _, start := range l.tracked(hook) {
		all = l.or(all, l.and(start.where, l.matches(r, start), l.leads(t, r.chain, start, hook)))
	}
	return all
}

// tracked returns all possible packets after connection tracking.
func (l *linter) tracked(hook interception.Hook) []thread {
	ts := l.anything(hook)
	if hook == interception.Prerouting || hook == interception.Output {
		raw := ts.list[0]
		ts = l.track(ts)
		l.add(&ts, raw)
	}
	return ts.list
}

// leads returns where a chain's jumps let packets through, if no rule decides before.
func (l *linter) leads(t table, name interception.ChainName, start thread, hook interception.Hook) ref {
	if name == "" {
		return always
	}
	through := never
	for _, r := range l.callers(&rule{plan: l.net.Plans[0], kind: t.kind, chain: name}) {
		if r.chain == "" && r.hook != hook {
			continue
		}
		through = l.or(through, l.and(l.matches(r, start), l.leads(t, r.chain, start, hook)))
	}
	return through
}

// hides reports whether a rule's decision keeps packets from another rule.
func (l *linter) hides(t table, r, dead *rule) bool {
	switch r.Action.(type) {
	case interception.Drop, interception.Reject:
		return true
	case interception.Return:
		return r.kind == t.kind && (r.chain == dead.chain || l.calls(t, r.chain, dead.chain))
	case interception.Accept, interception.RedirectTo, interception.DNATTo, interception.SNATTo, interception.TProxyTo:
		return r.kind == t.kind
	default:
		return false
	}
}

// calls reports whether jumps lead from one chain to another.
func (l *linter) calls(t table, from, to interception.ChainName) bool {
	return slices.ContainsFunc(l.callers(&rule{plan: l.net.Plans[0], kind: t.kind, chain: to}), func(r *rule) bool {
		return r.chain != "" && (r.chain == from || l.calls(t, from, r.chain))
	})
}
