// SPDX-License-Identifier: Apache-2.0

package render

import (
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// maxInline is the number of excluded items in one rule. Four lists of that length stay well below
// the 128 expressions of an nf_tables rule (NFT_RULE_MAXEXPRS).
const maxInline = 16

// xtConditions are a match in the words of iptables. A packet meets them if it meets one of the
// words in each list of all, and none of those in none. No packet meets an empty list in all.
type xtConditions struct {
	all  [][]string
	none []string
}

// count returns the number of lines that all needs, or at least [maxLines]+1.
func (c xtConditions) count() int {
	count := 1
	for _, words := range c.all {
		if count *= len(words); count > maxLines {
			return maxLines + 1
		}
	}
	return count
}

// each returns the words of each of these lines.
func (c xtConditions) each() []string {
	lines := []string{""}
	for _, words := range c.all {
		var longer []string
		for _, line := range lines {
			for _, word := range words {
				longer = append(longer, joined(line, word))
			}
		}
		lines = longer
	}
	return lines
}

// is adds the condition that a packet meets one of the words.
func (c *xtConditions) is(words ...string) { c.all = append(c.all, words) }

// isNot adds the condition that a packet meets none of the words, which are not negated. inline are
// the same words negated, for options that a rule can repeat.
func (c *xtConditions) isNot(words, inline []string) {
	if len(inline) > maxInline {
		c.none = append(c.none, words...)
		return
	}
	c.is(strings.Join(inline, " "))
}

// conditions translates a match of the table's family.
func (x *xtables) conditions(m interception.Match) xtConditions {
	var c xtConditions
	x.addresses(&c, "-s", m.Src, m.SrcSet)
	x.addresses(&c, "-d", m.Dst, m.DstSet)
	c.interfaces("-i", m.In)
	c.interfaces("-o", m.Out)
	c.transport(m.L4)
	x.liveSet(&c, "src", m.SrcSet)
	x.liveSet(&c, "dst", m.DstSet)
	if m.UID.Negated() || m.GID.Negated() {
		// A packet without a socket has no owner and does not meet the condition.
		c.is("-m owner --socket-exists")
	}
	owners(&c, "--uid-owner", m.UID.Present(), m.UID.Negated(), m.UID.Set())
	owners(&c, "--gid-owner", m.GID.Present(), m.GID.Negated(), m.GID.Set())
	if m.Mark.Present() {
		c.is("-m mark " + not(m.Mark.Negated()) + "--mark " + m.Mark.Set().String())
	}
	if m.ConnMark.Present() {
		c.is("-m connmark " + not(m.ConnMark.Negated()) + "--mark " + m.ConnMark.Set().String())
	}
	if m.State.Present() {
		c.is("-m conntrack " + not(m.State.Negated()) + "--ctstate " + states(m.State.Set()))
	}
	// A separate match: combined with --ctstate, packets without a connection would meet it.
	if m.Direction != interception.AnyDirection {
		c.is("-m conntrack --ctdir " + strings.ToUpper(m.Direction.String()))
	}
	return c
}

// addresses adds two conditions on an address. A rule has only one option for it, which prefixes
// that must match use first.
func (x *xtables) addresses(
	c *xtConditions, option string, literal interception.Condition[interception.PrefixSet], ref interception.Condition[interception.SetRef],
) {
	var in [][]netip.Prefix
	var out interception.PrefixSet
	note := func(present, negated bool, set interception.PrefixSet) {
		switch {
		case present && negated:
			out = out.Union(set)
		case present:
			in = append(in, set.Prefixes())
		}
	}
	note(literal.Present(), literal.Negated(), literal.Set())
	if members, fixed := x.sets[ref.Set().Name]; fixed {
		note(ref.Present(), ref.Negated(), members)
	}
	if len(in) == 2 {
		in = [][]netip.Prefix{common(in[0], in[1])}
	}
	narrowed := len(in) > 0 && !slices.ContainsFunc(in[0], isWhole)
	if narrowed {
		c.is(optionWords(option, prefixTexts(in[0]))...)
	}
	excluded := optionWords(option, prefixTexts(out.Prefixes()))
	switch {
	case slices.ContainsFunc(out.Prefixes(), isWhole):
		c.is() // the tools interpret "! -d 0.0.0.0/0" differently
	case len(excluded) == 1 && !narrowed:
		c.is("! " + excluded[0])
	default:
		c.none = append(c.none, excluded...)
	}
}

// liveSet adds a condition on the members of a live set.
func (x *xtables) liveSet(c *xtConditions, side string, ref interception.Condition[interception.SetRef]) {
	if name, live := x.live[ref.Set().Name]; live {
		c.is("-m set " + not(ref.Negated()) + "--match-set " + name + " " + side)
	}
}

// isWhole reports whether a prefix contains every address of its family.
func isWhole(p netip.Prefix) bool { return p.Bits() == 0 }

// common returns the intersection of two lists. Of overlapping prefixes, one contains the other.
func common(a, b []netip.Prefix) []netip.Prefix {
	var both []netip.Prefix
	for _, p := range a {
		for _, q := range b {
			if p.Overlaps(q) {
				both = append(both, netip.PrefixFrom(q.Addr(), max(p.Bits(), q.Bits())))
				if p.Bits() > q.Bits() {
					both[len(both)-1] = p
				}
			}
		}
	}
	return both
}

// interfaces adds a condition on an interface. No member of a set covers another: a packet matches
// one line.
func (c *xtConditions) interfaces(option string, condition interception.Condition[interception.InterfaceSet]) {
	if !condition.Present() {
		return
	}
	var patterns []string
	for _, name := range condition.Set().Names() {
		patterns = append(patterns, strings.Replace(string(name), "*", "+", 1))
	}
	words := optionWords(option, patterns)
	switch {
	case !condition.Negated():
		c.is(words...)
	case len(words) == 1:
		c.is("! " + words[0])
	default:
		c.none = append(c.none, words...)
	}
}

// owners adds a condition on an owner's id. A match takes one range, a rule several matches.
func owners[T ~uint32](c *xtConditions, option string, present, negated bool, ids interception.RangeSet[T]) {
	var words, inline []string
	for _, r := range ids.Ranges() {
		if uint64(r.Last) == math.MaxUint32 {
			if r.First == r.Last {
				continue // the highest number means no id, and the tools refuse it
			}
			r.Last--
		}
		words = append(words, "-m owner "+option+" "+r.String())
		inline = append(inline, "-m owner ! "+option+" "+r.String())
	}
	switch {
	case negated:
		c.isNot(words, inline)
	case present:
		c.is(words...)
	}
}

func optionWords(option string, values []string) []string {
	words := make([]string, len(values))
	for i, value := range values {
		words[i] = option + " " + value
	}
	return words
}

func not(negated bool) string {
	if negated {
		return "! "
	}
	return ""
}

// states returns the states in the order of iptables-save.
func states(set interception.ConnState) string {
	var words []string
	for _, state := range []interception.ConnState{
		interception.StateInvalid, interception.StateNew, interception.StateRelated, interception.StateEstablished, interception.StateUntracked,
	} {
		if set&state != 0 {
			words = append(words, strings.ToUpper(state.String()))
		}
	}
	return strings.Join(words, ",")
}
