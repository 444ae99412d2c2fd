// SPDX-License-Identifier: Apache-2.0

package proof_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
)

// base is a chain of somebody else in a hook.
func base(hook interception.Hook, priority int32, policy interception.Action, rules ...interception.Rule) interception.ForeignChain {
	return interception.ForeignChain{
		Table: "inet theirs", Name: "Base chain", Hook: hook.String(), Priority: priority, Policy: policy, Rules: rules,
	}
}

// does is a rule of somebody else.
func does(match m, action interception.Action) interception.Rule {
	return interception.Rule{Match: match, Action: action}
}

// A state is the default plan, with something beside it.
func TestEquivalentToStates(t *testing.T) {
	t.Parallel()
	accept, drop := interception.Action(interception.Accept{}), interception.Action(interception.Drop{})
	telnet := interception.TCP().To(interception.Ports(23))
	shared := base(interception.Output, -100, accept, does(m{L4: telnet}, interception.Return{}))
	shared.Shared = true
	leads := interception.ForeignChain{Table: "inet theirs", Name: "leads", Shared: true}
	blocks := interception.ForeignChain{Table: "inet theirs", Name: "blocks", Rules: []interception.Rule{does(m{L4: telnet}, interception.Drop{})}}
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
		"a rule far away": {interception.State{Foreign: []interception.ForeignChain{
			base(interception.Output, -300, accept, does(m{}, interception.Jump{Chain: "blocks"})), blocks,
		}}, "tcp dport 23 -> drop"},
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

// expectDoubts fails the test unless all that is said of a state names what is unknown of it.
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
	if last := x.Regions[len(x.Regions)-1]; last.Effect != proof.Undecoded || last.Decides.Rule.Action.String() != text {
		t.Errorf("explained without %q:\n%s", text, x)
	}
}
