// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"slices"
	"sort"
)

// line is a part of a plan as text, with the plan's id and reason for it.
type line struct {
	text  string // for comparison: equal for equal parts
	shown string // for reports
	keys  []string
	id    RuleID
	why   string
	head  bool // the line is the chain itself
}

// list holds the parts of one place. In an unordered list only a part's presence counts, and two
// lines with a common key are the same part with different content.
type list struct {
	at        string
	unordered bool
	live      bool // a live set, of which only the first line belongs to the plan
	lines     []line
}

// find returns the list of a place, or an empty one.
func find(all []*list, at string) (found *list, ok bool) {
	for _, l := range all {
		if l.at == at {
			return l, true
		}
	}
	return &list{at: at}, false
}

// taker turns objects into lists of lines, one list for each place.
type taker struct {
	lists        []*list
	sorts        map[string]int     // place to index in lists
	noPriorities bool               // of two entries, only their order is compared
	links        map[Interface]Link // by their names, those that the plan has, for observed ones
}

// lists returns the lines of the objects and of the deviations that have an object.
func lists(objects []Object, deviations []Deviation, t taker) []*list {
	t.sorts = map[string]int{}
	for _, o := range objects {
		t.object(o, "")
	}
	for _, d := range deviations {
		if d.Object != nil {
			t.object(d.Object, ", "+d.Got)
		}
	}
	return t.lists
}

func (t *taker) add(at string, unordered bool, l ...line) {
	i, ok := t.sorts[at]
	if !ok {
		i = len(t.lists)
		t.sorts[at] = i
		t.lists = append(t.lists, &list{at: at, unordered: unordered})
	}
	t.lists[i].lines = append(t.lists[i].lines, l...)
}

// object adds the lines of an object, with more appended to each.
func (t *taker) object(object Object, more string) {
	one := func(at, text string, id RuleID, why string, keys ...string) {
		t.add(at, true, line{text: text + more, shown: text + more, keys: keys, id: id, why: why})
	}
	switch o := object.(type) {
	case Link:
		if wanted, ok := t.links[o.Name]; ok {
			o = o.asked(wanted)
		}
		one("links", o.text(), o.ID, o.Why, string(o.Name))
	case Address:
		one("addresses", o.text(), o.ID, o.Why, o.Prefix.Addr().String())
	case Sysctl:
		one("sysctls", o.text(), o.ID, o.Why, o.Key)
	case Route:
		o.Table = o.Table.plain()
		one("routes", o.text(), o.ID, o.Why, fmt.Sprint(o.Destination, o.Table, o.EffectiveMetric()), fmt.Sprint(o.Destination, o.Table))
	case PolicyRule:
		o.Table = o.Table.plain()
		one("policy rules", o.text(), o.ID, o.Why, fmt.Sprint(o.Family, o.Priority), fmt.Sprint(o.Family, o.selectors(), o.target()))
	case Set:
		t.add("set "+string(o.Name), true, setLines(o)...)
		t.lists[t.sorts["set "+string(o.Name)]].live = o.Live
	case Table:
		t.table(o)
	}
}

// linksOf returns the plan's links by their names.
func linksOf(p *Plan) map[Interface]Link {
	links := map[Interface]Link{}
	for l := range ObjectsOf[Link](p) {
		links[l.Name] = l
	}
	return links
}

// plain returns the zero value for the number of the main table.
func (t RoutingTable) plain() RoutingTable {
	if t == mainTable {
		return 0
	}
	return t
}

// mainTable is RT_TABLE_MAIN (linux/rtnetlink.h).
const mainTable = 254

// table adds a list for each hook, in the kernel's order of evaluation, and one for each chain.
func (t *taker) table(table Table) {
	for _, hook := range Hooks() {
		var entries []Entry
		for _, e := range table.Entries {
			if e.Hook == hook {
				entries = append(entries, e)
			}
		}
		// The generic sort would take twice the space in the binary.
		sort.SliceStable(entries, func(i, j int) bool { return entries[i].Offset < entries[j].Offset })
		for _, e := range byFamily(entries, func(e *Entry) Family { return e.Match.EffectiveFamily() }) {
			shown := e.text()
			e.Match = e.Match.canonical()
			if t.noPriorities {
				e.Offset = 0
			}
			t.add(table.Kind.String()+" hook "+hook.String(), false, line{text: e.text(), shown: shown, id: e.ID, why: e.Why})
		}
	}
	for _, chain := range table.Chains {
		rules := []line{{text: "chain", shown: "chain " + string(chain.Name), head: true}}
		for _, r := range byFamily(chain.Rules, func(r *Rule) Family { return r.Match.EffectiveFamily() }) {
			match := r.Match.canonical()
			rules = append(rules, line{
				text: conditions(match, canonicalAction(match, r.Action)), shown: conditions(r.Match, r.Action), id: r.ID, why: r.Why,
			})
		}
		t.add(table.Kind.String()+"/"+string(chain.Name), false, rules...)
	}
}

// byFamily puts IPv4 before IPv6 among neighbours for one family: no packet meets both.
func byFamily[T any](list []T, family func(*T) Family) []T {
	sorted := make([]T, 0, len(list))
	for start := 0; start < len(list); {
		end := start
		for end < len(list) && family(&list[end]) != BothFamilies {
			end++
		}
		for _, f := range []Family{IPv4, IPv6} {
			for i := start; i < end; i++ {
				if family(&list[i]) == f {
					sorted = append(sorted, list[i])
				}
			}
		}
		if end < len(list) {
			sorted = append(sorted, list[end])
		}
		start = end + 1
	}
	return sorted
}

// setLines returns the set's kind and each of its members, so that a difference names the member.
func setLines(s Set) []line {
	kind := "fixed set of " + s.Family.String()
	if s.Live {
		kind = "live set of " + s.Family.String()
		if s.Addresses {
			kind += " addresses"
		}
	}
	l := []line{{text: kind, shown: kind, keys: []string{"kind"}, why: s.Why}}
	for _, prefix := range s.Members.Prefixes() {
		l = append(l, line{text: prefix.String(), shown: prefix.String(), why: s.Why})
	}
	return l
}

// renamed finds chains that differ by name only, so that their rules are no difference.
func renamed(want, got []*list) {
	for _, w := range want {
		if _, there := find(got, w.at); there || !w.isChain() || len(w.lines) < 2 {
			continue
		}
		for _, g := range got {
			if _, wanted := find(want, g.at); wanted || !g.isChain() || !slices.EqualFunc(w.lines, g.lines, sameText) {
				continue
			}
			g.at = w.at
			g.lines[0].text = g.lines[0].shown
			break
		}
	}
}

func sameText(a, b line) bool { return a.text == b.text }

func (l *list) isChain() bool { return len(l.lines) > 0 && l.lines[0].head }
