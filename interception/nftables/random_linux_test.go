// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// TestRandomPlansSameAsNFT does the same as TestMatchesSameAsNFT with random plans.
func TestRandomPlansSameAsNFT(t *testing.T) {
	t.Parallel()
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			compare(t, randomPlan(t, rand.New(rand.NewPCG(seed, 0))))
		})
	}
}

// randomPlan has some sets, and some chains in the mangle and filter tables that call each other.
func randomPlan(t *testing.T, r *rand.Rand) *interception.Plan {
	t.Helper()
	return build(t, "mesh-test", func(b *interception.Builder) {
		sets := map[interception.Family][]interception.SetRef{}
		for i := range r.IntN(4) {
			family := randomFamily(r)
			name := interception.SetName(fmt.Sprintf("set-%d", i))
			switch r.IntN(6) {
			case 0:
				sets[family] = append(sets[family], b.LiveSet(name, family, "a random live set"))
				continue
			case 1:
				sets[family] = append(sets[family], b.LiveAddresses(name, family, "a random live set"))
				continue
			}
			sets[family] = append(sets[family], b.Set(name, randomPrefixes(r, family, 1+r.IntN(40)), "a random set"))
		}
		randomChains(r, sets, [3]*interception.ChainRef[interception.MangleAction]{b.Mangle("a"), b.Mangle("b"), b.Mangle("c")},
			interception.Postrouting, []interception.MangleAction{
				interception.Accept{},
				interception.Return{},
				interception.Drop{},
				interception.SaveMark{},
				interception.RestoreMark{},
				interception.SetMark{Mark: randomBits(r)},
				interception.SetConnMark{Mark: randomBits(r)},
				interception.Log{Prefix: "random: "},
			})
		randomChains(r, sets, [3]*interception.ChainRef[interception.FilterAction]{b.Filter("x"), b.Filter("y"), b.Filter("z")},
			interception.Input, []interception.FilterAction{interception.Accept{}, interception.Return{}, interception.Drop{}, interception.Reject{}})
	})
}

func randomChains[A interception.Action](
	r *rand.Rand, sets map[interception.Family][]interception.SetRef, chains [3]*interception.ChainRef[A], hook interception.Hook,
	actions []A,
) {
	chains[0].Entry(hook, randomMatch(r, sets, hook), "a random entry")
	for i, chain := range chains {
		for n := range r.IntN(16) {
			id := interception.RuleID(fmt.Sprintf("%s.r%d-%d", hook, i, n))
			if i < 2 && r.IntN(4) == 0 {
				chain.Call(id, randomMatch(r, sets, hook), chains[i+1], "a random jump")
				continue
			}
			chain.Do(id, randomMatch(r, sets, hook), actions[r.IntN(len(actions))], "a random rule")
		}
	}
}

// randomMatch has a random choice of the conditions that are known in the hook.
func randomMatch(r *rand.Rand, sets map[interception.Family][]interception.SetRef, hook interception.Hook) interception.Match {
	var m interception.Match
	family := randomFamily(r)
	sometimes := func(do func()) {
		if r.IntN(4) == 0 {
			do()
		}
	}
	sometimes(func() { m.Family = family })
	sometimes(func() { m.Src = randomly(r, randomPrefixes(r, family, 1+r.IntN(4))) })
	sometimes(func() { m.Dst = randomly(r, randomPrefixes(r, family, 1+r.IntN(4))) })
	if of := sets[family]; len(of) > 0 {
		sometimes(func() { m.SrcSet = randomly(r, of[r.IntN(len(of))]) })
		sometimes(func() { m.DstSet = randomly(r, of[r.IntN(len(of))]) })
	}
	sometimes(func() { m.L4 = randomL4(r) })
	sometimes(func() { m.Mark = randomly(r, randomBits(r)) })
	sometimes(func() { m.ConnMark = randomly(r, randomBits(r)) })
	sometimes(func() { m.State = randomly(r, interception.ConnState(1+r.IntN(31))) })
	sometimes(func() { m.Direction = interception.Direction(r.IntN(3)) })
	interfaces := randomly(r, interception.Interfaces([]interception.Interface{"eth*", "lo", "eth0", "net1.4*", "net1.4000"}[r.IntN(5):]...))
	if hook == interception.Input {
		sometimes(func() { m.In = interfaces })
		return m
	}
	sometimes(func() { m.Out = interfaces })
	sometimes(func() { m.UID = randomly(r, interception.UIDs(randomNumbers[interception.UID](r)...)) })
	sometimes(func() { m.GID = randomly(r, interception.GIDs(randomNumbers[interception.GID](r)...)) })
	return m
}

func randomBits(r *rand.Rand) interception.MarkBits {
	mask := []interception.Mark{1, 0xff00, 0x80000000, 0xffffffff}[r.IntN(4)]
	return interception.MarkBits{Value: mask & interception.Mark(r.Uint32()), Mask: mask}
}

func randomly[S interception.Operand](r *rand.Rand, set S) interception.Condition[S] {
	if r.IntN(2) == 0 {
		return interception.Not(set)
	}
	return interception.Is(set)
}

func randomFamily(r *rand.Rand) interception.Family {
	return []interception.Family{interception.IPv4, interception.IPv6}[r.IntN(2)]
}

func randomL4(r *rand.Rand) interception.L4 {
	l := []interception.L4{interception.TCP(), interception.UDP()}[r.IntN(2)]
	if l.Protocol() == interception.ProtocolTCP && r.IntN(3) == 0 {
		mask := interception.TCPFlag(1 + r.IntN(63))
		flags := interception.TCPFlags{Mask: mask, Set: mask & interception.TCPFlag(r.IntN(64))}
		if l = l.Flags(flags); r.IntN(2) == 0 {
			l = l.NotFlags(flags)
		}
	}
	switch ports := interception.Ports(randomNumbers[interception.Port](r)...); r.IntN(5) {
	case 0:
		return l.To(ports)
	case 1:
		return l.NotTo(ports)
	case 2:
		return l.From(ports)
	case 3:
		return l.NotFrom(ports).To(interception.Ports(randomNumbers[interception.Port](r)...))
	default:
		return l
	}
}

// randomNumbers returns a few numbers, some of which are neighbours, and some at an end.
func randomNumbers[N ~uint16 | ~uint32](r *rand.Rand) []N {
	last := ^N(0)
	numbers := []N{[]N{0, 80, 1337, last - 3}[r.IntN(4)]}
	for range r.IntN(5) {
		numbers = append(numbers, numbers[len(numbers)-1]+N(1+r.IntN(2)))
	}
	return numbers
}

// randomPrefixes returns prefixes close to each other, so that some nest or touch.
func randomPrefixes(r *rand.Rand, family interception.Family, n int) interception.PrefixSet {
	list := make([]netip.Prefix, n)
	for i := range list {
		address := [16]byte{[]byte{0, 10, 255}[r.IntN(3)], byte(r.IntN(4) << 6), byte(r.IntN(2)), byte(r.IntN(256)), 15: byte(r.IntN(256))}
		if family == interception.IPv4 {
			list[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte(address[:4])), 1+r.IntN(32))
		} else {
			list[i] = netip.PrefixFrom(netip.AddrFrom16(address), 1+r.IntN(128))
		}
	}
	return interception.Prefixes(list...)
}
