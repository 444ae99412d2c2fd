// SPDX-License-Identifier: Apache-2.0

package proof_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

func TestLintGolden(t *testing.T) {
	t.Parallel()
	for name, plan := range goldenPlans(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := proof.Lint(plan, proof.Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				t.Error(f)
			}
		})
	}
}

func expectFindings(t *testing.T, plan *interception.Plan, want ...string) {
	t.Helper()
	found, err := proof.Lint(plan, proof.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		got = append(got, f.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The dead rule of Open Service Mesh: its chain for outbound traffic sends all TCP to the proxy,
// and the next rule returns traffic to the proxy's administration port.
func TestLintFindsTheDeadRuleOfOSM(t *testing.T) {
	t.Parallel()
	plan, err := interception.Build("osm-mesh", func(b *interception.Builder) {
		redirect := b.NAT("out-redirect")
		redirect.Do("out.redirect", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "all to the proxy")
		redirect.Do("out.admin", interception.Match{L4: interception.TCP().To(interception.Ports(15000))}, interception.Accept{}, "not the administration port")
		out := b.NAT("outbound")
		out.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		lo, notLo := interception.Is(interception.Interfaces("lo")), interception.Not(interception.Prefixes(netip.MustParsePrefix("127.0.0.1/32")))
		envoy := interception.UIDs(1500)
		in := b.NAT("in-redirect")
		in.Do("in.redirect", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15003}, "inbound to the proxy")
		out.Call("out.self", interception.Match{Out: lo, Dst: notLo, UID: interception.Is(envoy)}, in, "calls to itself")
		out.Do("out.local", interception.Match{Out: lo, UID: interception.Not(envoy)}, interception.Return{}, "within the pod")
		out.Do("out.proxy", interception.Match{UID: interception.Is(envoy)}, interception.Return{}, "of the proxy")
		out.Do("out.loopback", interception.Match{Dst: interception.Is(interception.Prefixes(netip.MustParsePrefix("127.0.0.1/32")))}, interception.Return{}, "loopback")
		out.Call("out.all", interception.Match{}, redirect, "everything else")
	})
	if err != nil {
		t.Fatal(err)
	}
	expectFindings(t, plan,
		"nat/out-redirect[1] out.admin (tcp dport 15000 -> accept) never matches: out.redirect (tcp -> redirect to :15001) decides before")
}

func TestLintFindings(t *testing.T) {
	t.Parallel()
	tcp, udp := m{L4: interception.TCP()}, m{L4: interception.UDP()}
	low, high := m{L4: interception.TCP().To(interception.PortRange(0, 99))}, m{L4: interception.TCP().To(interception.PortRange(100, 65535))}
	for name, c := range map[string]struct {
		fill func(b *interception.Builder)
		want []string
	}{
		"nothing": {func(*interception.Builder) {}, nil},
		"several rules together": {func(b *interception.Builder) {
			c := b.Filter("in")
			c.Entry(interception.Input, m{}, "why")
			c.Do("low", low, interception.Drop{}, "why")
			c.Do("high", high, interception.Return{}, "why")
			c.Do("tcp", tcp, interception.Accept{}, "why")
			c.Do("udp", udp, interception.Accept{}, "why")
		}, []string{"filter/in[2] tcp (tcp -> accept) never matches: together, low (tcp dport 0-99 -> drop), high (tcp dport 100-65535 -> return) decide before"}},
		"a rule that the entry contradicts": {func(b *interception.Builder) {
			c := b.Filter("in")
			c.Entry(interception.Input, tcp, "why")
			c.Do("udp", udp, interception.Drop{}, "why")
		}, []string{"filter/in[0] udp (udp -> drop) never matches: no packet there meets its conditions"}},
		"a state that nat never sees": {func(b *interception.Builder) {
			c := b.NAT("out")
			c.Entry(interception.Output, tcp, "why")
			c.Do("old", m{L4: interception.TCP(), State: interception.Is(interception.StateEstablished)}, interception.Return{}, "why")
			c.Do("related", m{State: interception.Is(interception.StateRelated)}, interception.Return{}, "why")
		}, []string{"nat/out[0] old (tcp state established -> return) never matches: no packet there meets its conditions"}},
		"a related packet has the mark of its connection": {func(b *interception.Builder) {
			c := b.Mangle("out")
			c.Entry(interception.Output, m{}, "why")
			marked := interception.Is(interception.MarkBits{Value: 1, Mask: 1})
			c.Do("error", m{State: interception.Is(interception.StateRelated), ConnMark: marked}, interception.Drop{}, "why")
		}, nil},
		"a mark that was written over": {func(b *interception.Builder) {
			c := b.Mangle("out")
			c.Entry(interception.Output, m{}, "why")
			c.Do("mark", m{}, interception.SetMark{Mark: interception.MarkBits{Value: 1, Mask: 1}}, "why")
			c.Do("even", m{Mark: interception.Is(interception.MarkBits{Value: 0, Mask: 1})}, interception.Drop{}, "why")
			c.Do("odd", m{Mark: interception.Is(interception.MarkBits{Value: 3, Mask: 3})}, interception.Drop{}, "why")
		}, []string{"mangle/out[1] even (mark 0x0/0x1 -> drop) never matches: no packet there meets its conditions"}},
		"a drop in another table": {func(b *interception.Builder) {
			raw := b.Raw("out")
			raw.Entry(interception.Output, tcp, "why")
			raw.Do("drop", m{}, interception.Drop{}, "why")
			c := b.NAT("out")
			c.Entry(interception.Output, m{}, "why")
			c.Do("tcp", tcp, interception.RedirectTo{Port: 1}, "why")
		}, []string{"nat/out[0] tcp (tcp -> redirect to :1) never matches: drop (any -> drop) decides before"}},
		"unreached chains": {func(b *interception.Builder) {
			c, far, alone := b.Filter("in"), b.Filter("far"), b.Filter("alone")
			c.Entry(interception.Input, tcp, "why")
			c.Call("jump", udp, far, "why")
			far.Do("far.drop", m{}, interception.Drop{}, "why")
			alone.Do("alone.drop", m{}, interception.Drop{}, "why")
		}, []string{
			"filter/in[0] jump (udp -> jump far) never matches: no packet there meets its conditions",
			"chain filter/far is never reached: what jumps to it never matches: jump (udp -> jump far)",
			"chain filter/alone is never reached: nothing jumps to it",
		}},
		"an entry after one that decides": {func(b *interception.Builder) {
			c := b.Filter("all")
			c.Entry(interception.Forward, m{}, "why")
			c.Do("accept", m{}, interception.Accept{}, "why")
			tail := b.Filter("tail")
			tail.Entry(interception.Forward, udp, "why")
			tail.Do("drop", m{}, interception.Drop{}, "why")
		}, []string{
			"filter hook forward filter.forward.tail (udp -> jump tail) never matches: accept (any -> accept) decides before",
			"chain filter/tail is never reached: what jumps to it never matches: filter.forward.tail (udp -> jump tail)",
		}},
		"interfaces that are not in a sidecar's world": {func(b *interception.Builder) {
			c := b.Filter("in")
			c.Entry(interception.Input, m{}, "why")
			c.Do("one", m{In: interception.Is(interception.Interfaces("net1"))}, interception.Drop{}, "why")
			c.Do("nets", m{In: interception.Is(interception.Interfaces("net*"))}, interception.Drop{}, "why")
			c.Do("two", m{In: interception.Is(interception.Interfaces("net2"))}, interception.Drop{}, "why")
			c.Do("other", m{In: interception.Not(interception.Interfaces("eth0", "lo"))}, interception.Drop{}, "why")
		}, []string{"filter/in[2] two (in net2 -> drop) never matches: nets (in net* -> drop) decides before"}},
		"live sets may hold anything": {func(b *interception.Builder) {
			set := b.LiveSet("pods", interception.IPv4, "why")
			c := b.Filter("in")
			c.Entry(interception.Input, m{}, "why")
			c.Do("in", m{SrcSet: interception.Is(set)}, interception.Drop{}, "why")
			c.Do("out", m{SrcSet: interception.Not(set)}, interception.Drop{}, "why")
			c.Do("four", m{Family: interception.IPv4}, interception.Drop{}, "why")
		}, []string{"filter/in[2] four (v4 -> drop) never matches: together, in (src @pods -> drop), out (src != @pods -> drop) decide before"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := interception.Build("my-mesh", c.fill)
			if err != nil {
				t.Fatal(err)
			}
			expectFindings(t, plan, c.want...)
		})
	}
}

// Of all settings of a sidecar, only exclusions of lo, of rerouted interfaces, and of groups where
// none is included leave dead rules.
func TestLintRandomSidecars(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		choose := sample.Seeded(seed)
		redirect := sample.Redirect(choose)
		redirect.Interfaces, redirect.Outbound.Groups = sidecar.InterfacePolicy{}, sidecar.OwnerGroups{}
		plan, err := sidecar.Plan(redirect, interception.Facts{IPv6: choose(2) == 0}, "my-mesh")
		if err != nil {
			t.Fatal(err)
		}
		expectFindings(t, plan)
	}
}
