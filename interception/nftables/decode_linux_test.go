// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// FuzzDecode reads messages that no kernel ever sent: a chain, its rule, a set and its elements.
func FuzzDecode(f *testing.F) {
	for _, c := range lower.Chains(fuzzPlan(f)) {
		for _, r := range c.Rules {
			f.Add(chainMessage(f, c.Name), ruleMessage(f, c.Name, r), setMessage(f, 2), elementMessage(f, []byte{0, 80}, 0))
			f.Add(chainMessage(f, c.Name), ruleMessage(f, c.Name, r), setMessage(f, 4), elementMessage(f, []byte{10, 0, 0, 1}, 1))
			f.Add(chainMessage(f, c.Name), ruleMessage(f, c.Name, r), setMessage(f, 16), elementMessage(f, make([]byte, 16), 1))
		}
	}
	f.Fuzz(func(_ *testing.T, chain, rule, set, elements []byte) {
		for family := range foreignFamilies() {
			c, s := decodeChain(chain), decodeSet(set)
			r, err := decodeRule(rule)
			members, _ := elementsOf(elements)
			s.add(members)
			if err != nil {
				continue
			}
			c.rules = []kernelRule{r, r}
			table := &kernelTable{family: family, name: "mesh-test", chains: []kernelChain{c}, sets: []kernelSet{s}}
			owned := readLayout(table)
			plan := interception.Plan{Owner: "mesh-test", Objects: owned.objects()}
			state := interception.State{Objects: owned.objects(), Deviations: owned.deviations, Foreign: table.foreign()}
			_ = interception.Diff(&plan, state)
			_ = plan.String()
		}
	})
}

func fuzzPlan(tb testing.TB) *interception.Plan {
	tb.Helper()
	plan, err := interception.Build("mesh-test", func(b *interception.Builder) {
		tcp, nat, filter := interception.TCP(), b.NAT("output"), b.Filter("input")
		nat.Entry(interception.Output, interception.Match{}, "an entry")
		loopback := interception.Prefixes(netip.MustParsePrefix("127.0.0.0/8"))
		nat.Do("a", interception.Match{
			Out: interception.Not(interception.Interfaces("lo", "eth*")), Dst: interception.Not(loopback),
			L4: tcp.To(interception.Ports(80, 443)).NotFrom(interception.PortRange(1, 9)).Flags(interception.Opening()),
		}, interception.RedirectTo{Port: 15001}, "a rule")
		nat.Do("b", interception.Match{UID: interception.Is(interception.UIDs(1, 2, 3, 9)), GID: interception.Not(interception.GIDs(1))},
			interception.Return{}, "a rule")
		nat.Do("c", interception.Match{Family: interception.IPv4, L4: tcp}, interception.DNATTo{Addr: netip.MustParseAddr("10.0.0.1"), Port: 1}, "a rule")
		filter.Entry(interception.Input, interception.Match{Mark: interception.Is(interception.MarkBits{Value: 1, Mask: 3})}, "an entry")
		filter.Do("d", interception.Match{State: interception.Not(interception.StateNew)}, interception.Log{Prefix: "log"}, "a rule")
		filter.Do("e", interception.Match{ConnMark: interception.Not(interception.WholeMark(1))}, interception.Reject{}, "a rule")
		mangle, raw := b.Mangle("pre"), b.Raw("pre")
		mangle.Entry(interception.Prerouting, interception.Match{}, "an entry")
		mangle.Do("f", interception.Match{L4: tcp}, interception.TProxyTo{Port: 1, Mark: interception.MarkBits{Value: 1, Mask: 1}}, "a rule")
		mangle.Do("g", interception.Match{}, interception.SaveMark{}, "a rule")
		mangle.Do("h", interception.Match{}, interception.SetConnMark{Mark: interception.WholeMark(1)}, "a rule")
		mangle.Do("j", interception.Match{}, interception.SaveMark{Mask: 3}, "a rule")
		mangle.Do("k", interception.Match{}, interception.RestoreMark{Mask: 3}, "a rule")
		raw.Do("i", interception.Match{}, interception.SetZone{Zone: 1}, "a rule")
	})
	if err != nil {
		tb.Fatal(err)
	}
	return plan
}

func encode(tb testing.TB, fill func(e *netlink.AttributeEncoder) error) []byte {
	tb.Helper()
	e := netlink.NewAttributeEncoder()
	if err := fill(e); err != nil {
		tb.Fatal(err)
	}
	message, err := e.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	return message
}

func chainMessage(tb testing.TB, name string) []byte {
	tb.Helper()
	return encode(tb, func(e *netlink.AttributeEncoder) error {
		e.String(unix.NFTA_CHAIN_TABLE, "mesh-test")
		e.String(unix.NFTA_CHAIN_NAME, name)
		e.String(unix.NFTA_CHAIN_TYPE, "nat")
		e.Bytes(unix.NFTA_CHAIN_POLICY, []byte{0, 0, 0, 1})
		e.Nested(unix.NFTA_CHAIN_HOOK, func(e *netlink.AttributeEncoder) error {
			e.Bytes(unix.NFTA_HOOK_HOOKNUM, []byte{0, 0, 0, 3})
			e.Bytes(unix.NFTA_HOOK_PRIORITY, []byte{0xff, 0xff, 0xff, 0x9c})
			return nil
		})
		return nil
	})
}

func ruleMessage(tb testing.TB, chain string, r lower.Rule) []byte {
	tb.Helper()
	t := newTransaction("mesh-test")
	return encode(tb, func(e *netlink.AttributeEncoder) error {
		e.String(unix.NFTA_RULE_TABLE, "mesh-test")
		e.String(unix.NFTA_RULE_CHAIN, chain)
		e.Nested(unix.NFTA_RULE_EXPRESSIONS, func(e *netlink.AttributeEncoder) error {
			for _, expression := range t.expressions(r) {
				e.Nested(unix.NFTA_LIST_ELEM, func(e *netlink.AttributeEncoder) error {
					e.String(unix.NFTA_EXPR_NAME, expression.name)
					e.Bytes(unix.NFTA_EXPR_DATA, expression.data)
					return nil
				})
			}
			return nil
		})
		e.Bytes(unix.NFTA_RULE_USERDATA, appendComment(nil, ruleComment, r.Comment))
		return nil
	})
}

func setMessage(tb testing.TB, length byte) []byte {
	tb.Helper()
	return encode(tb, func(e *netlink.AttributeEncoder) error {
		e.String(unix.NFTA_SET_NAME, anonymousName)
		e.Bytes(unix.NFTA_SET_FLAGS, []byte{0, 0, 0, plainSet})
		e.Bytes(unix.NFTA_SET_KEY_LEN, []byte{0, 0, 0, length})
		return nil
	})
}

func elementMessage(tb testing.TB, key []byte, flags byte) []byte {
	tb.Helper()
	return encode(tb, func(e *netlink.AttributeEncoder) error {
		e.Nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(e *netlink.AttributeEncoder) error {
			e.Nested(unix.NFTA_LIST_ELEM, func(e *netlink.AttributeEncoder) error {
				e.Bytes(unix.NFTA_SET_ELEM_FLAGS, []byte{0, 0, 0, flags})
				e.Nested(unix.NFTA_SET_ELEM_KEY, func(e *netlink.AttributeEncoder) error {
					e.Bytes(unix.NFTA_DATA_VALUE, key)
					return nil
				})
				return nil
			})
			return nil
		})
		return nil
	})
}

// TestElementsCutOff ends a message of elements within an attribute: it is an error.
func TestElementsCutOff(t *testing.T) {
	t.Parallel()
	whole := elementMessage(t, []byte{10, 0, 0, 1}, 0)
	if elements, err := elementsOf(whole); err != nil || len(elements) != 1 {
		t.Errorf("as a whole: got %d elements and %v", len(elements), err)
	}
	if elements, err := elementsOf(whole[:len(whole)-4]); err == nil {
		t.Errorf("cut off: got %d elements, want an error", len(elements))
	}
}
