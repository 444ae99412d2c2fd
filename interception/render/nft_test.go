// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

// script renders a plan that is expected to be valid.
func script(t testing.TB, plan *interception.Plan) string {
	t.Helper()
	text, err := render.NFT(plan)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNFT(t *testing.T) {
	t.Parallel()
	plan := build(t, func(b *interception.Builder) {
		v4 := b.Set("excluded-v4", prefixes(t, "192.168.0.0/16,10.0.0.0/8,11.0.0.0/9"), "excluded destinations")
		b.Set("excluded-v6", prefixes(t, "::1/128"), "more of them")
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		output.Do("output.excluded", interception.Match{DstSet: interception.Not(v4)}, interception.Return{}, "stays")
		b.Raw("empty").Entry(interception.Prerouting, interception.Match{}, "an entry")
	})
	const want = `table inet mesh-test
delete table inet mesh-test
table inet mesh-test {
	set set-excluded-v4 {
		type ipv4_addr
		flags constant, interval
		comment "excluded destinations"
		elements = {
			10.0.0.0-11.127.255.255,
			192.168.0.0/16,
		}
	}

	set set-excluded-v6 {
		type ipv6_addr
		flags constant, interval
		comment "more of them"
		elements = {
			::1,
		}
	}

	chain hook.nat.output {
		type nat hook output priority -100; policy accept;
		meta l4proto tcp jump nat-output comment "nat.output.output d46e2b70 connections from the pod"
	}

	chain nat-output {
		ip daddr != @set-excluded-v4 return comment "output.excluded 30b1270c stays"
	}

	chain hook.raw.prerouting {
		type filter hook prerouting priority -300; policy accept;
		jump raw-empty comment "raw.prerouting.empty eec20274 an entry"
	}

	chain raw-empty {
	}
}
`
	got := script(t, plan)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("script (-want +got):\n%s", diff)
	}
	if again := script(t, plan); again != got {
		t.Error("the same plan gives another text the second time")
	}
}

func TestNFTWithoutObjects(t *testing.T) {
	t.Parallel()
	const want = "table inet mesh-test\ndelete table inet mesh-test\n"
	if got := script(t, build(t, func(*interception.Builder) {})); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNFTInvalid checks that nothing which was not validated gets into the text.
func TestNFTInvalid(t *testing.T) {
	t.Parallel()
	for _, plan := range []*interception.Plan{
		{},
		{Owner: "redirect"},
		{Owner: "mesh-test { } flush ruleset"},
		{Owner: "mesh-test", Objects: []interception.Object{interception.Table{Kind: interception.NAT, Chains: []interception.Chain{
			{Name: "output", Rules: []interception.Rule{{ID: "a.rule", Action: interception.Return{}, Why: `"; flush ruleset #`}}},
		}}}},
		{Owner: "mesh-test", Objects: []interception.Object{interception.Table{Kind: interception.NAT, Chains: []interception.Chain{
			{Name: "output", Rules: []interception.Rule{{ID: "a.rule", Why: "without an action"}}},
		}}}},
	} {
		if text, err := render.NFT(plan); !errors.Is(err, interception.ErrPlan) || text != nil {
			t.Errorf("%v: got %q, %v, want ErrPlan", plan, text, err)
		}
	}
}

func TestNFTRules(t *testing.T) {
	t.Parallel()
	tcp, udp := interception.TCP, interception.UDP
	in, notIn := interception.Is[interception.PrefixSet], interception.Not[interception.PrefixSet]
	v4, v6 := interception.SetRef{Name: "v4", Family: interception.IPv4}, interception.SetRef{Name: "v6", Family: interception.IPv6}
	for want, match := range map[string]interception.Match{
		"":                              {},
		"meta nfproto ipv4":             {Family: interception.IPv4},
		"meta nfproto ipv6":             {Family: interception.IPv6},
		`oifname "lo"`:                  {Out: interception.Is(interception.Interfaces("lo"))},
		`oifname != { "eth0", "lo" }`:   {Out: interception.Not(interception.Interfaces("lo", "eth0"))},
		"ip saddr 127.0.0.6":            {Src: in(prefixes(t, "127.0.0.6/32"))},
		"ip saddr 127.0.0.0/8":          {Src: in(prefixes(t, "127.0.0.0/8"))},
		"ip daddr != 10.0.0.0-10.0.0.2": {Dst: notIn(prefixes(t, "10.0.0.0/31,10.0.0.2/32"))},
		"ip daddr { 10.0.0.0/8, 11.0.0.1-11.0.0.2 }": {Dst: in(prefixes(t, "10.0.0.0/8,11.0.0.1/32,11.0.0.2/32"))},
		"meta nfproto ipv6 ip6 daddr != ::1":         {Family: interception.IPv6, Dst: notIn(prefixes(t, "::1/128"))},
		"ip6 saddr ::6 ip6 daddr != @set-v6":         {Src: in(prefixes(t, "::6/128")), DstSet: interception.Not(v6)},
		"ip saddr @set-v4":                           {SrcSet: interception.Is(v4)},
		"meta l4proto udp":                           {L4: udp()},
		"tcp dport 15008":                            {L4: tcp().To(interception.Ports(15008))},
		"tcp dport != 80-90":                         {L4: tcp().NotTo(interception.PortRange(80, 90))},
		"udp sport 53 udp dport { 53, 1000-1002 }":   {L4: udp().From(interception.Ports(53)).To(interception.Ports(1000, 1001, 1002, 53))},
		"meta skuid 1337":                            {UID: interception.Is(interception.UIDs(1337))},
		"meta skuid != { 0, 1337-1338 }":             {UID: interception.Not(interception.UIDs(1337, 1338, 0))},
		"meta skgid 1337-1338":                       {GID: interception.Is(interception.GIDs(1338, 1337))},
		`meta nfproto ipv4 oifname "lo" ip saddr 10.0.0.1 ip daddr != 127.0.0.1 tcp dport 80 meta skuid 1 meta skgid 2`: {
			Family: interception.IPv4, Out: interception.Is(interception.Interfaces("lo")), Src: in(prefixes(t, "10.0.0.1/32")),
			Dst: notIn(prefixes(t, "127.0.0.1/32")), L4: tcp().To(interception.Ports(80)),
			UID: interception.Is(interception.UIDs(1)), GID: interception.Is(interception.GIDs(2)),
		},
	} {
		plan := build(t, func(b *interception.Builder) {
			b.Set("v4", prefixes(t, "10.0.0.0/8"), "a set")
			b.Set("v6", prefixes(t, "::1/128"), "a set")
			b.Filter("chain").Do("the.rule", match, interception.Drop{}, "why")
		})
		words := strings.TrimSpace(want + " drop comment")
		if text := script(t, plan); !strings.Contains(text, "\t"+words+` "the.rule `) {
			t.Errorf("no rule %q in\n%s", words, text)
		}
	}
	in80 := build(t, func(b *interception.Builder) {
		b.Filter("chain").Do("the.rule", interception.Match{In: interception.Is(interception.Interfaces("eth0"))}, interception.Accept{}, "why")
	})
	if text := script(t, in80); !strings.Contains(text, "\tiifname \"eth0\" accept comment") {
		t.Errorf("no rule about the interface in\n%s", text)
	}
}

func TestNFTActions(t *testing.T) {
	t.Parallel()
	text := script(t, build(t, func(b *interception.Builder) {
		chain, called := b.NAT("chain"), b.NAT("called")
		chain.Do("a.accept", interception.Match{}, interception.Accept{}, "why")
		chain.Do("a.return", interception.Match{}, interception.Return{}, "why")
		chain.Do("a.redirect", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "why")
		chain.Call("a.jump", interception.Match{}, called, "why")
		b.Filter("chain").Do("a.drop", interception.Match{}, interception.Drop{}, "why")
	}))
	for _, want := range []string{
		"\taccept comment \"a.accept ", "\treturn comment \"a.return ", "\tmeta l4proto tcp redirect to :15001 comment \"a.redirect ",
		"\tjump nat-called comment \"a.jump ", "\tdrop comment \"a.drop ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
