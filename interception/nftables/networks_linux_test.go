// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

// networksPlan has sets of networks of one length: for both addresses, both families, and negated.
func networksPlan(t testing.TB) *interception.Plan {
	t.Helper()
	var v4, v6, hosts []netip.Prefix
	for i := range 70 {
		v4 = append(v4, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(2 * i), 0}), 24))
		v6 = append(v6, netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(2 * i)}), 40))
		hosts = append(hosts, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(2 * i)}), 32))
	}
	return build(t, "mesh-test", func(b *interception.Builder) {
		fixed, six := b.Set("fixed", interception.Prefixes(v4...), "some networks"), b.Set("six", interception.Prefixes(v6...), "some networks")
		host := b.Set("hosts", interception.Prefixes(hosts...), "some hosts")
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "what leaves")
		output.Do("a.set", interception.Match{DstSet: interception.Is(fixed)}, interception.Return{}, "left alone")
		output.Do("a.six", interception.Match{SrcSet: interception.Not(six)}, interception.Return{}, "left alone")
		output.Do("a.host", interception.Match{DstSet: interception.Is(host)}, interception.Return{}, "left alone")
		output.Do("a.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "to the proxy")
	})
}

// TestNetworksAreRead applies a plan, loads nft's listing of it, and loads its rendering: each time
// Observe returns the plan, and another Apply writes nothing.
func TestNetworksAreRead(t *testing.T) {
	t.Parallel()
	plan := networksPlan(t)
	rendered, err := render.NFT(plan)
	if err != nil {
		t.Fatal(err)
	}
	ns := newPod(t)
	ns.apply(t, plan)
	listing := ns.nft(t, "", "list", "table", "inet", "mesh-test")
	for _, part := range []string{
		"ip daddr & 255.255.255.0 == @set-fixed/24", "ip6 saddr & ffff:ffff:ff00:: != @set-six/40", "ip daddr @set-hosts/32",
	} {
		if !strings.Contains(listing, part) {
			t.Errorf("%q is not in\n%s", part, listing)
		}
	}
	for name, text := range map[string]string{"": "", "as nft lists it": "delete table inet mesh-test\n" + listing, "as it is rendered": string(rendered)} {
		if text != "" {
			ns.load(t, text)
		}
		if drifts := ns.drifts(t, plan); drifts != nil {
			t.Errorf("%s: got\n%s", name, strings.Join(drifts, "\n"))
		}
		before := ns.handles(t)
		ns.apply(t, plan)
		if after := ns.handles(t); after != before {
			t.Errorf("%s: the plan was written again", name)
		}
	}
}

// TestEditsOfNetworks covers the edits that only this form of a set allows.
func TestEditsOfNetworks(t *testing.T) {
	t.Parallel()
	const rule = "nat/output: changed a.set (left alone): want dst @fixed -> return: got "
	for name, e := range map[string]edit{
		"a network is gone": {replaced("10.0.2.0,", ""), []string{"set fixed: missing: want 10.0.2.0/24"}},
		"a network is more": {replaced("10.0.2.0,", "10.0.2.0, 10.0.3.0,"), []string{
			"set fixed: missing: want 10.0.2.0/24", "set fixed: extra: got 10.0.2.0/23",
		}},
		"bits that the mask clears": {replaced("10.0.2.0,", "10.0.2.1,"), []string{
			"set fixed: changed: want plain members: got a member with a timeout, a statement, a flag, or bits that its mask clears",
			"set fixed: missing: want 10.0.2.0/24",
		}},
		"another mask": {replaced("255.255.255.0 ==", "255.255.0.0 =="), []string{
			rule + "v4 -> opaque: payload ",
		}},
		"no mask": {replaced("ip daddr & 255.255.255.0 == ", "ip daddr "), []string{
			rule + "v4 -> opaque: payload ",
		}},
		"another name": {text(func(l string) string { return strings.ReplaceAll(l, "set-fixed/24", "set-fixed/16") }), []string{
			"set fixed: changed: want plain members: got a member with a timeout, a statement, a flag, or bits that its mask clears",
			"set fixed: missing: want 10.0.0.0/24",
		}},
		"a second set": {script("add set inet mesh-test set-fixed { type ipv4_addr ; flags constant,interval ; }"), []string{
			"set set-fixed/24: extra: got a set of 4 bytes", "set set-fixed: extra: got a set of 4 bytes",
		}},
		"the other form": {text(func(l string) string {
			l = strings.Replace(l, "flags constant", "flags constant,interval", 1)
			return strings.ReplaceAll(l, "set-fixed/24", "set-fixed")
		}), []string{
			rule + "v4 -> opaque: payload ", "set fixed: missing: want 10.0.0.0/24",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, plan := newPod(t), networksPlan(t)
			ns.apply(t, plan)
			e.do(t, ns)
			got := strings.Join(ns.drifts(t, plan), "\n")
			for _, want := range e.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in\n%s", want, got)
				}
			}
			ns.apply(t, plan)
			if diff := cmp.Diff([]string(nil), ns.drifts(t, plan)); diff != "" {
				t.Errorf("after another Apply: %s", diff)
			}
		})
	}
}

// TestNetworksOfOthers has such a rule in another program's table: it is decoded.
func TestNetworksOfOthers(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	for mask, want := range map[string]string{
		"255.255.255.0": "dst 10.1.2.0/24,10.1.4.0/24 -> return", // one of them has other bits set
		"255.0.255.0":   "v4 -> opaque: payload",
	} {
		ns.load(t, fmt.Sprintf(`table inet other
delete table inet other
table inet other {
	set nets { type ipv4_addr; flags constant; elements = { 10.1.2.0, 10.1.4.0, 10.1.6.1 } }
	chain c {
		type filter hook output priority 0
		ip daddr & %s @nets return
	}
}`, mask))
		var rules []string
		for _, chain := range ns.observeAll(t, "mesh-test").Foreign {
			for _, rule := range chain.Rules {
				rules = append(rules, fmt.Sprintf("%s -> %s", rule.Match, rule.Action))
			}
		}
		if len(rules) != 1 || !strings.HasPrefix(rules[0], want) {
			t.Errorf("mask %s: got %q, want %s", mask, rules, want)
		}
	}
}

// handles returns the table with the kernel's handles, which change when it is written again.
func (p *pod) handles(t testing.TB) string {
	t.Helper()
	return p.nft(t, "", "-a", "list", "table", "inet", "mesh-test")
}
