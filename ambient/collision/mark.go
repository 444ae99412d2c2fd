// SPDX-License-Identifier: Apache-2.0

package collision

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// marks are the bits of the marks of packets and of connections that rules look at or write.
type marks struct {
	packet, connection []interception.MarkBits
}

// marksOf returns the bits that a rule or a jump uses.
func marksOf(m interception.Match, a interception.Action) (used marks) {
	if m.Mark.Present() {
		used.packet = append(used.packet, m.Mark.Set())
	}
	if m.ConnMark.Present() {
		used.connection = append(used.connection, m.ConnMark.Set())
	}
	switch a := a.(type) {
	case interception.SetMark:
		used.packet = append(used.packet, a.Mark)
	case interception.TProxyTo:
		used.packet = append(used.packet, a.Mark)
	case interception.SetConnMark:
		used.connection = append(used.connection, a.Mark)
	case interception.SaveMark:
		used.connection = append(used.connection, copied(a.Mask))
	case interception.RestoreMark:
		used.packet = append(used.packet, copied(a.Mask))
	}
	return used
}

// copied returns the bits that a mask selects, where 0 stands for all.
func copied(mask interception.Mark) interception.MarkBits {
	return interception.MarkBits{Mask: cmp.Or(mask, ^mask)}
}

func (u *marks) add(more marks) {
	u.packet, u.connection = append(u.packet, more.packet...), append(u.connection, more.connection...)
}

// planMarks returns the marks that a plan uses, without those whose bits another mark has, too.
func planMarks(p *interception.Plan) (used marks) {
	for table := range p.Tables() {
		for _, e := range table.Entries {
			used.add(marksOf(e.Match, nil))
		}
	}
	for _, r := range p.Rules() {
		used.add(marksOf(r.Match, r.Action))
	}
	for r := range interception.ObjectsOf[interception.PolicyRule](p) {
		if !r.Mark.IsEmpty() {
			used.packet = append(used.packet, r.Mark)
		}
	}
	return marks{widest(numbers(used.packet)), widest(numbers(used.connection))}
}

// numbers leaves out marks that only stand for the absence of others, as in a condition that no
// mark of the plan is set. Such a sum is not a number that anyone has chosen, and the other marks
// have all of its bits, so no clash is missed.
func numbers(all []interception.MarkBits) []interception.MarkBits {
	var chosen interception.Mark
	for _, m := range all {
		if m.Value != 0 {
			chosen |= m.Mask
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(m interception.MarkBits) bool { return m.Value == 0 && m.Mask&^chosen == 0 })
}

func widest(all []interception.MarkBits) []interception.MarkBits {
	return slices.DeleteFunc(slices.Clone(all), func(m interception.MarkBits) bool {
		return slices.ContainsFunc(all, func(o interception.MarkBits) bool { return o.Mask != m.Mask && o.Mask&m.Mask == m.Mask })
	})
}

// marks returns the rules of other programs that use bits of the plan's marks.
func (s Standing) marks(p *interception.Plan) (all []Collision) {
	own := planMarks(p)
	for _, chain := range s.Chains {
		for _, r := range chain.Rules {
			others := marksOf(r.Match, r.Action)
			by := fmt.Sprintf("%s/%s: %s -> %s", chain.Table, chain.Name, r.Match, r.Action)
			for _, kind := range []struct {
				name      string
				own, used []interception.MarkBits
			}{{"packet mark", own.packet, others.packet}, {"connection mark", own.connection, others.connection}} {
				for _, mark := range kind.own {
					if slices.ContainsFunc(kind.used, func(o interception.MarkBits) bool { return o.Mask&mark.Mask != 0 }) {
						all = append(all, Collision{kind.name + " " + mark.String(), by})
					}
				}
			}
		}
	}
	return all
}
