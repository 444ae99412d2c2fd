// SPDX-License-Identifier: Apache-2.0

package rendercheck_test

import (
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// planner generates parts of a plan, valid or not.
type planner struct{ sample.Generator }

// spoil changes a part of a plan to an invalid or a borderline value.
func spoil(p planner, plan *interception.Plan) {
	changes := []func(planner, *interception.Plan){
		func(p planner, plan *interception.Plan) { plan.Owner = interception.Owner(p.name(13)) },
		spoilTable, spoilEntry, spoilChain, spoilChain, spoilRule, spoilRule, spoilRule, spoilSet, addObject,
	}
	changes[p.Choices(len(changes))](p, plan)
}

// anyTable changes a random table of the plan that has a chain, on a copy of the table's content.
func anyTable(p planner, plan *interception.Plan, change func(t *interception.Table)) {
	at := p.Choices(len(plan.Objects))
	for i := range plan.Objects {
		if t, ok := plan.Objects[(at+i)%len(plan.Objects)].(interception.Table); ok && len(t.Entries) > 0 {
			change(&t)
			plan.Objects[(at+i)%len(plan.Objects)] = t
			return
		}
	}
}

func spoilTable(p planner, plan *interception.Plan) {
	anyTable(p, plan, func(t *interception.Table) {
		switch p.Choices(3) {
		case 0:
			t.Kind = interception.TableKind(p.Choices(6))
		case 1:
			plan.Objects = append(plan.Objects, *t)
		case 2:
			t.Chains = append(t.Chains, t.Chains[0])
		}
	})
}

func spoilEntry(p planner, plan *interception.Plan) {
	anyTable(p, plan, func(t *interception.Table) {
		e := &t.Entries[p.Choices(len(t.Entries))]
		switch p.Choices(6) {
		case 0:
			e.Hook = interception.Hook(p.Choices(7))
		case 1:
			e.Why = p.prose(76)
		case 2:
			e.ID = interception.RuleID(p.name(40))
		case 3:
			e.Chain = interception.ChainName(p.name(14))
		case 4:
			e.Offset = int32(p.Choices(601) - 300)
		case 5:
			e.Match = p.wildMatch()
		}
	})
}

// spoilChain renames a chain, and usually also its name in the jumps to it.
func spoilChain(p planner, plan *interception.Plan) {
	anyTable(p, plan, func(t *interception.Table) {
		c := &t.Chains[p.Choices(len(t.Chains))]
		before, after, told := c.Name, interception.ChainName(p.name(14)), p.Choices(4) > 0
		c.Name = after
		for i := range t.Entries {
			if told && t.Entries[i].Chain == before {
				t.Entries[i].Chain = after
			}
		}
		for _, chain := range t.Chains {
			for i, r := range chain.Rules {
				if r.Action == (interception.Jump{Chain: before}) && told {
					chain.Rules[i].Action = interception.Jump{Chain: after}
				}
			}
		}
	})
}

func spoilRule(p planner, plan *interception.Plan) {
	anyTable(p, plan, func(t *interception.Table) {
		c := &t.Chains[p.Choices(len(t.Chains))]
		if len(c.Rules) == 0 {
			return
		}
		r := &c.Rules[p.Choices(len(c.Rules))]
		switch p.Choices(6) {
		case 0:
			r.ID = interception.RuleID(p.name(40))
		case 1:
			r.Why = p.prose(76)
		case 2:
			r.Action = p.wildAction(*t)
		case 3:
			r.Match = p.wildMatch()
		case 4:
			r.Match.L4 = p.L4()
		case 5:
			r.Match.In = interception.Is(interception.Interfaces(interception.Interface(p.name(15)), "lo"))
		}
	})
}

func spoilSet(p planner, plan *interception.Plan) {
	for i, object := range plan.Objects {
		set, ok := object.(interception.Set)
		if !ok {
			continue
		}
		switch p.Choices(4) {
		case 0:
			set.Name = interception.SetName(p.name(28))
		case 1:
			set.Why = p.prose(76)
		case 2:
			set.Live = true
		case 3:
			set.Members = sample.Prefixes(p.Choices, p.family())
		}
		plan.Objects[i] = set
		return
	}
}

// addObject adds valid and invalid objects that the texts cannot express.
func addObject(p planner, plan *interception.Plan) {
	device, why := interception.Interface(p.name(15)), p.prose(76)
	prefix := sample.Prefixes(p.Choices, p.family()).Prefixes()[0]
	objects := []interception.Object{
		nil,
		interception.Link{ID: "link", Name: device, Why: why},
		interception.Address{ID: "address", Device: device, Prefix: prefix, Why: why},
		interception.Sysctl{ID: "sysctl", Key: "ipv4/conf/" + p.name(15) + "/forwarding", Value: p.Choices(3), Why: why},
		interception.Route{ID: "route", Destination: prefix, Device: device, Why: why},
		interception.PolicyRule{ID: "policy", Family: p.family(), Mark: p.Mark(), Table: interception.RoutingTable(p.Choices(3)), Priority: 1, Why: why},
	}
	plan.Objects = append([]interception.Object{objects[p.Choices(len(objects))]}, plan.Objects...)
}

// wildMatch returns a match for any table and hook, which may contradict itself.
func (p planner) wildMatch() interception.Match {
	m := p.Match(interception.TableKinds()[p.Choices(4)], interception.Hooks()[p.Choices(5)])
	switch p.Choices(6) {
	case 0:
		m.L4 = interception.TCP().To(interception.PortSet{})
	case 1:
		m.Dst = interception.Not(sample.Prefixes(p.Choices, interception.IPv4).Union(sample.Prefixes(p.Choices, interception.IPv6)))
	case 2:
		m.Mark = interception.Is(interception.MarkBits{Value: 3, Mask: 1})
	case 3:
		m.SrcSet = interception.Is(interception.SetRef{Name: "four", Family: p.family()})
	}
	return m
}

// wildAction returns any action, whether or not the table allows it.
func (p planner) wildAction(t interception.Table) interception.Action {
	address := netip.AddrFrom4([4]byte{byte(p.Choices(256)), 0, 0, byte(p.Choices(2))})
	port := interception.Port(p.Choices(3))
	actions := []interception.Action{
		nil,
		interception.Accept{},
		interception.Return{},
		interception.Drop{},
		interception.Reject{},
		interception.NoTrack{},
		interception.Opaque{Text: "accept"},
		interception.Jump{Chain: t.Chains[p.Choices(len(t.Chains))].Name},
		interception.Jump{Chain: interception.ChainName(p.name(14))},
		interception.Log{Prefix: p.prose(29)},
		interception.RedirectTo{Port: port},
		interception.DNATTo{Addr: address, Port: port},
		interception.SNATTo{Addr: address, Port: port},
		interception.TProxyTo{Port: port, Mark: p.Mark()},
		interception.SetMark{Mark: p.Mark()},
		interception.SetConnMark{Mark: interception.MarkBits{Value: 3, Mask: 1}},
		interception.SaveMark{Mask: interception.Mark(p.Choices(1<<31 - 1))},
		interception.RestoreMark{Mask: interception.Mark(p.Choices(1<<31 - 1))},
		interception.SetZone{Zone: uint16(p.Choices(1<<31 - 1))},
		interception.SetZone{Zone: uint16(p.Choices(3)), Direction: interception.Direction(p.Choices(4))},
	}
	return actions[p.Choices(len(actions))]
}

// name returns a name up to a maximum length, often of exactly that length, a word of nft's
// language, or with invalid characters.
func (p planner) name(most int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	words := []string{"accept", "jump", "table", "set", "ip", "tcp", "redirect", "mark", "dport", "x"}
	switch p.Choices(5) {
	case 0:
		return p.bad(most)
	case 1:
		return words[p.Choices(len(words))]
	case 2:
		return words[p.Choices(len(words))] + "-" + words[p.Choices(len(words))]
	}
	length := []int{most, most, most + 1, 1 + p.Choices(most)}[p.Choices(4)]
	var b strings.Builder
	b.WriteByte(letters[p.Choices(26)])
	for b.Len() < length {
		b.WriteString([]string{string(letters[p.Choices(len(letters))]), "-", "."}[max(0, p.Choices(12)-9)])
	}
	return b.String()[:length]
}

// prose returns a reason up to a maximum length, often of exactly that length, or with invalid
// characters.
func (p planner) prose(most int) string {
	if p.Choices(4) == 0 {
		return p.bad(most)
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:()/-"
	length := []int{most, most, most + 1, 1 + p.Choices(most)}[p.Choices(4)]
	var b strings.Builder
	for b.Len() < length {
		b.WriteByte(letters[p.Choices(len(letters))])
	}
	return b.String()
}

// bad returns characters that could end a line, a string or a block of a text.
func (p planner) bad(most int) string {
	parts := []string{"\"", "\n", "}", ";", "\\", "'", "#", "$(id)", "\x00", "é", "\t", "%s", "a", "", " -j ACCEPT", "COMMIT"}
	var b strings.Builder
	for range 1 + p.Choices(4) {
		b.WriteString(parts[p.Choices(len(parts))])
	}
	return strings.Repeat("a", p.Choices(most)) + b.String()
}

func (p planner) family() interception.Family {
	return sample.Pick(p.Choices, interception.IPv4, interception.IPv6)
}

// planOf returns the plan that bytes describe: a random one in which each byte decides a choice,
// spoilt in places, so that it may be valid or not. It is for fuzzing.
func planOf(data []byte) *interception.Plan {
	hash := fnv.New64a()
	_, _ = hash.Write(data)
	r := rand.New(&byteSource{data, rand.NewPCG(hash.Sum64(), 0)})
	spoils := r.IntN(4)
	plan := sample.Rules(r.IntN, "mesh-test")
	for range spoils {
		spoil(planner{sample.NewGenerator(r.IntN)}, plan)
	}
	return plan
}

// byteSource takes the highest bits of its numbers, which decide small choices, from bytes, and
// random ones after their end.
type byteSource struct {
	data []byte
	rest rand.Source
}

// Uint64 returns the next number.
func (s *byteSource) Uint64() uint64 {
	n := s.rest.Uint64()
	if len(s.data) > 0 {
		n = n>>8 | uint64(s.data[0])<<56
		s.data = s.data[1:]
	}
	return n
}
