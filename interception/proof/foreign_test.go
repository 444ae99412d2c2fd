// SPDX-License-Identifier: Apache-2.0

package proof_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
)

// base returns a foreign base chain in a hook.
func base(hook interception.Hook, priority int32, policy interception.Action, rules ...interception.Rule) interception.ForeignChain {
	return interception.ForeignChain{
		Table: "inet theirs", Name: "Base chain", Hook: hook.String(), Type: "filter", Priority: priority, Policy: policy, Rules: rules,
	}
}

// nat returns a foreign base chain that may translate.
func nat(hook interception.Hook, priority int32, rules ...interception.Rule) interception.ForeignChain {
	c := base(hook, priority, interception.Accept{}, rules...)
	c.Table, c.Type = "ip nat", "nat"
	return c
}

// does returns a foreign rule.
func does(match m, action interception.Action) interception.Rule {
	return interception.Rule{Match: match, Action: action}
}

// A state is the default plan and other objects.
func TestEquivalentToStates(t *testing.T) {
	t.Parallel()
	accept, drop := interception.Action(interception.Accept{}), interception.Action(interception.Drop{})
	telnet := interception.TCP().To(interception.Ports(23))
	shared := base(interception.Output, -100, accept, does(m{L4: telnet}, interception.Return{}))
	shared.Shared = true
	leads := interception.ForeignChain{Table: "inet theirs", Name: "leads", Shared: true}
	blocks := interception.ForeignChain{Table: "inet theirs", Name: "blocks", Rules: []interception.Rule{does(m{L4: telnet}, interception.Drop{})}}
	away := interception.RedirectTo{Port: 9999}
	besides := func(chains ...interception.ForeignChain) interception.State {
		return interception.State{Foreign: chains}
	}
	ingress := base(interception.Prerouting, 0, accept, does(m{}, interception.Drop{}))
	ingress.Hook = "ingress"
	route := interception.Route{Destination: netip.MustParsePrefix("192.0.2.0/24"), Device: "eth0"}
	asleep := interception.Deviation{At: "table inet golden-mesh", Want: "active", Got: "dormant"}
	for name, c := range map[string]struct {
		beside interception.State
		want   string
	}{
		"nothing": {interception.State{}, "yes"},
		"a policy": {
			interception.State{Deviations: []interception.Deviation{{At: "nat hook output", Want: "policy accept", Got: "policy drop"}}},
			"nat hook output: want policy accept: got policy drop",
		},
		"a route": {
			interception.State{Deviations: []interception.Deviation{{At: "routes", Object: route, Got: "metric 5"}}}, "192.0.2.0/24",
		},
		"another program's route": {
			interception.State{Dormant: true, Deviations: []interception.Deviation{asleep, {At: "routes", Got: "a route of theirs", Foreign: true}}},
			"unknown: ",
		},
		"a dormant table": {interception.State{Dormant: true, Deviations: []interception.Deviation{asleep}}, "no: "},
		"chains that only accept, return and log": {interception.State{Foreign: []interception.ForeignChain{
			base(interception.Output, -300, accept, does(m{L4: telnet}, accept), does(m{}, interception.Log{}), does(m{}, interception.Return{})),
			{Table: "inet theirs", Name: "unreached", Rules: []interception.Rule{does(m{}, drop)}},
			base(interception.Forward, 0, drop),
		}}, "yes"},
		"a chain that returns ahead of the owner's jump": {interception.State{Foreign: []interception.ForeignChain{shared}}, "tcp dport 23 -> return"},
		"a chain that leads to one that leads to the owner's": {interception.State{Foreign: []interception.ForeignChain{
			base(interception.Output, -300, accept, does(m{}, interception.Jump{Chain: "leads"})), leads,
		}}, "inet theirs/"},
		"a chain that leads nowhere": {interception.State{Foreign: []interception.ForeignChain{
			base(interception.Output, -300, accept, does(m{}, interception.Jump{Chain: "gone"})),
		}}, "-> jump gone"},
		"a rule beyond a chain that accepts": {interception.State{Foreign: []interception.ForeignChain{
			base(interception.Output, -300, accept, does(m{}, interception.Jump{Chain: "blocks"})), blocks,
		}}, "no: "},
		"a redirect ahead of ours":    {besides(nat(interception.Output, -110, does(m{L4: interception.TCP()}, away))), "no: tcp"},
		"a redirect at the same time": {besides(nat(interception.Output, -100, does(m{L4: telnet}, away))), "tcp dport 23 -> redirect to :9999"},
		"a redirect after ours of what ours leaves": {
			besides(nat(interception.Output, -90, does(m{L4: interception.UDP()}, away))), "no: udp",
		},
		"a redirect after ours of what ours takes": {
			besides(nat(interception.Prerouting, -90, does(m{L4: interception.TCP().To(interception.Ports(8080))}, away))), "yes",
		},
		"two at the same time": {besides(
			base(interception.Output, -10, accept, does(m{L4: telnet}, drop)), base(interception.Output, -10, accept, does(m{L4: telnet}, drop)),
		), "unknown: "},
		"a policy of somebody else's": {besides(base(interception.Output, 0, drop, does(m{L4: interception.UDP()}, accept))), "no: tcp"},
		"a policy after rules that accept all": {
			besides(base(interception.Input, 0, drop, does(m{Family: interception.IPv4}, accept), does(m{}, accept))), "yes",
		},
		"a rule that returns to the policy": {besides(base(interception.Input, 0, drop, does(m{}, interception.Return{}), does(m{}, accept))), "no: "},
		"a drop of what is dropped already": {besides(
			base(interception.Output, -310, drop, does(m{}, accept), does(m{}, drop)), base(interception.Output, -200, accept),
		), "yes"},
		"a rule in the midst of connection tracking": {besides(base(interception.Output, -200, accept, does(m{L4: telnet}, drop))), "unknown: "},
		"a rule of no plan": {
			besides(base(interception.Output, 0, accept, does(m{L4: telnet}, interception.Opaque{Text: "queue"}))),
			"inet theirs/Base chain[0] (hook output, priority 0): tcp dport 23 -> opaque: queue",
		},
		"a rule of no plan that nothing meets": {
			besides(base(interception.Input, 0, accept, does(m{}, accept), does(m{}, interception.Opaque{Text: "queue"}))), "yes",
		},
		"a mark that nothing is routed by": {
			besides(base(interception.Output, -150, accept, does(m{L4: telnet}, interception.SetMark{Mark: interception.WholeMark(5)}))),
			"tcp dport 23 -> set mark",
		},
		"a mark": {
			besides(base(interception.Postrouting, -150, accept, does(m{L4: telnet}, interception.SetMark{Mark: interception.WholeMark(5)}))), "no: ",
		},
		"a chain at a link": {interception.State{Foreign: []interception.ForeignChain{ingress}}, "(hook ingress, priority 0)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := goldenPlans(t)["default"]
			state := c.beside
			state.Owner, state.Objects = plan.Owner, plan.Objects
			got, err := proof.Equivalent(plan, state, proof.Options{})
			if err != nil || !strings.Contains(got.String(), c.want) {
				t.Errorf("%v, %v, want %q", got, err, c.want)
			}
			expectDoubts(t, state, got)
		})
	}
}

// TestExplainNamesTablesAsTheyAre includes names with characters that an owner's name cannot have.
func TestExplainNamesTablesAsTheyAre(t *testing.T) {
	t.Parallel()
	theirs := base(interception.Output, -110, interception.Accept{}, does(m{L4: interception.TCP().To(interception.Ports(23))}, interception.Drop{}))
	theirs.Table, theirs.Name = "inet consul_tproxy", "x"
	got, err := proof.Explain(interception.State{Owner: "istio-cni", Foreign: []interception.ForeignChain{theirs}}, proof.Query{}, proof.Options{})
	if err != nil || !strings.Contains(got.String(), "inet consul_tproxy/x") {
		t.Errorf("%v\n%v", err, got)
	}
}

// TestForwarding has rules in hook forward, which count if a namespace forwards.
func TestForwarding(t *testing.T) {
	t.Parallel()
	drops := built(t, func(b *interception.Builder) {
		c := b.Filter("forward")
		c.Entry(interception.Forward, m{}, "why")
		c.Do("drop", m{L4: interception.UDP(), Direction: interception.DirectionReply}, interception.Drop{}, "why")
	})
	nothing := built(t, func(*interception.Builder) {})
	foreign := interception.State{Owner: nothing.Owner, Foreign: []interception.ForeignChain{
		base(interception.Forward, 0, interception.Drop{}),
	}}
	for forwards, want := range map[bool][2]proof.Answer{false: {proof.Yes, proof.Yes}, true: {proof.No, proof.Unknown}} {
		world := proof.World(drops)
		world.Namespaces[0].Forwards = forwards
		got, err := proof.Equivalent(drops, nothing, proof.Options{World: world})
		if err != nil || got.Answer != want[0] {
			t.Errorf("forwards %t: %v, %v", forwards, got, err)
		}
		if got, err = proof.Equivalent(nothing, foreign, proof.Options{World: world}); err != nil || got.Answer != want[1] {
			t.Errorf("forwards %t, a chain of others: %v, %v", forwards, got, err)
		}
	}
}

// expectDoubts fails the test unless the answer is Unknown and names what is unknown about the
// state.
func expectDoubts(t *testing.T, state interception.State, got proof.Comparison) {
	t.Helper()
	findings, err := proof.Lint(state, proof.Options{})
	if err != nil || (len(findings) > 0 && findings[0].Kind == proof.Deviates) != (state.Deviations != nil) {
		t.Errorf("lint: %v, %v", findings, err)
	}
	if got.Answer != proof.Unknown {
		return
	}
	text := got.Undecoded[0].Rule.Action.String()
	x := explained(t, state, "out")
	if !slices.ContainsFunc(x.Regions, func(r proof.Region) bool {
		return r.Effect == proof.Undecoded && r.Decides.Rule.Action.String() == text
	}) {
		t.Errorf("explained without %q:\n%s", text, x)
	}
}
