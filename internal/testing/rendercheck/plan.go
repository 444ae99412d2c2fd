// SPDX-License-Identifier: Apache-2.0

package rendercheck

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// RandomPlan returns a valid plan of the owner mesh-test, with chains in all four tables that call
// each other, and fixed sets.
func RandomPlan(r *rand.Rand) (*interception.Plan, error) {
	return interception.Build("mesh-test", func(b *interception.Builder) {
		p := planner{r, map[interception.Family][]interception.SetRef{}}
		for i := range r.IntN(4) {
			family := p.family()
			name := interception.SetName(fmt.Sprintf("set-%d", i))
			p.sets[family] = append(p.sets[family], b.Set(name, p.prefixes(family, 1+r.IntN(5)), "a random set"))
		}
		fill(p, b.Raw("a"), b.Raw("b"), interception.Raw, interception.Output, rawActions)
		fill(p, b.Raw("c"), b.Raw("d"), interception.Raw, interception.Prerouting, rawActions)
		fill(p, b.Mangle("a"), b.Mangle("b"), interception.Mangle, interception.Output, mangleActions)
		fill(p, b.Mangle("c"), b.Mangle("d"), interception.Mangle, interception.Prerouting, mangleInActions)
		fill(p, b.NAT("a"), b.NAT("b"), interception.NAT, interception.Output, natActions)
		fill(p, b.NAT("c"), b.NAT("d"), interception.NAT, interception.Postrouting, natPostActions)
		fill(p, b.Filter("a"), b.Filter("b"), interception.Filter, interception.Output, filterActions)
	})
}

// planner generates parts of a plan.
type planner struct {
	*rand.Rand
	sets map[interception.Family][]interception.SetRef
}

// fill adds rules that packets in the hook can meet to two chains, of which the first calls the
// second.
func fill[A interception.Action](
	p planner, chain, called *interception.ChainRef[A], table interception.TableKind, hook interception.Hook,
	actions func(planner, interception.Match) []A,
) {
	chain.Entry(hook, p.match(table, hook), "a random entry")
	for i, c := range []*interception.ChainRef[A]{chain, called} {
		for n := range p.IntN(6) {
			id, match := interception.RuleID(fmt.Sprintf("%s.%s.r%d-%d", table, hook, i, n)), p.match(table, hook)
			if i == 0 && p.IntN(5) == 0 {
				c.Call(id, match, called, "a random call")
				continue
			}
			of := actions(p, match)
			c.Do(id, match, of[p.IntN(len(of))], "a random rule")
		}
	}
}

func rawActions(p planner, _ interception.Match) []interception.RawAction {
	return []interception.RawAction{
		interception.Accept{},
		interception.Return{},
		interception.Return{},
		interception.Drop{},
		interception.NoTrack{},
		interception.SetZone{Zone: uint16(p.IntN(3))},
		interception.Log{Prefix: "a (random) prefix, a.b/c:"},
	}
}

func mangleActions(p planner, _ interception.Match) []interception.MangleAction {
	mask := interception.Mark(p.Uint32N(3) * 0xff)
	return []interception.MangleAction{
		interception.Accept{},
		interception.Return{},
		interception.Return{},
		interception.Drop{},
		interception.Log{Prefix: "-"},
		interception.SetMark{Mark: p.mark()},
		interception.SetConnMark{Mark: p.mark()},
		interception.SaveMark{Mask: mask},
		interception.RestoreMark{Mask: mask},
	}
}

func mangleInActions(p planner, m interception.Match) []interception.MangleAction {
	actions := mangleActions(p, m)
	if m.L4.Protocol() != interception.AnyProtocol {
		actions = append(actions, interception.TProxyTo{Port: 15006, Mark: p.mark()})
	}
	return actions
}

func natActions(p planner, m interception.Match) []interception.NATAction {
	actions := []interception.NATAction{interception.Accept{}, interception.Return{}, interception.Return{}, interception.Log{Prefix: "nat"}}
	if address, ok := addressOf(m); ok {
		actions = append(actions, interception.DNATTo{Addr: address, Port: p.natPort(m)})
	}
	if m.L4.Protocol() != interception.AnyProtocol {
		actions = append(actions, interception.RedirectTo{Port: 15001})
	}
	return actions
}

func natPostActions(p planner, m interception.Match) []interception.NATAction {
	actions := []interception.NATAction{interception.Accept{}, interception.Return{}}
	if address, ok := addressOf(m); ok {
		actions = append(actions, interception.SNATTo{Addr: address, Port: p.natPort(m)})
	}
	return actions
}

func filterActions(planner, interception.Match) []interception.FilterAction {
	return []interception.FilterAction{
		interception.Accept{},
		interception.Return{},
		interception.Return{},
		interception.Drop{},
		interception.Reject{},
		interception.Reject{},
		interception.Log{Prefix: "filter"},
	}
}

// addressOf returns an address that packets which meet the match can be sent to.
func addressOf(m interception.Match) (netip.Addr, bool) {
	switch m.EffectiveFamily() {
	case interception.IPv4:
		return netip.AddrFrom4([4]byte{10, 0, 0, 1}), true
	case interception.IPv6:
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1}), true
	case interception.BothFamilies:
	}
	return netip.Addr{}, false
}

func (p planner) natPort(m interception.Match) interception.Port {
	if m.L4.Protocol() == interception.AnyProtocol {
		return 0
	}
	return interception.Port(p.IntN(3))
}
