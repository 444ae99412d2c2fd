// SPDX-License-Identifier: Apache-2.0

package proof_test

import (
	"errors"
	"flag"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

var triples = flag.Uint64("triples", 4, "how many times random sidecars are asked whether one captures what two others do")

func TestCovers(t *testing.T) {
	t.Parallel()
	golden := goldenPlans(t)
	nothing := &interception.Plan{Owner: "golden-mesh"}
	golden["empty"] = nothing
	for _, test := range []struct {
		name  string
		rules *interception.Plan
		plans []string
		want  string // a part of the text about a packet that bypasses the proxy; "" without one
	}{
		{"the plan itself", golden["default"], []string{"default"}, ""},
		{"nothing", nothing, []string{"default"}, "no: tcp uid 1000 gid 1000 > 198.51.100.1:8080"},
		{"nothing, for plans that have nothing in common", nothing, []string{"default", "empty"}, ""},
		{"the other mode", golden["tproxy"], []string{"default"}, "no: tcp uid 1000 gid 1337 > 127.0.0.3:15021"},
		{"the other mode, for both", golden["tproxy"], []string{"default", "tproxy"}, ""},
		{"a mode without DNS", golden["default"], []string{"dns"}, "no: tcp uid 1000 gid 1000 > 127.0.0.1:53"},
		{"a mode without DNS, for a plan without", golden["tproxy"], []string{"dns", "tproxy", "default"}, ""},
		{"one family", golden["ipv4-only"], []string{"default"}, "no: tcp uid 1000 gid 1000 > [2001:db8::1]:8080"},
		{"an excluded port", golden["inbound-exclude-port"], []string{"tproxy", "default"}, "no: tcp in eth0"},
		{"more than the plan", golden["default"], []string{"inbound-exclude-port"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var plans []*interception.Plan
			for _, name := range test.plans {
				plans = append(plans, golden[name])
			}
			got, err := proof.Covers(test.rules, plans, proof.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" && got.Answer != proof.Yes || !strings.HasPrefix(got.String(), test.want) {
				t.Errorf("got %s, want %q", got, test.want)
			}
		})
	}
	if _, err := proof.Covers(nothing, nil, proof.Options{}); err == nil {
		t.Error("without a plan there is no error")
	}
	if _, err := proof.Covers(nothing, []*interception.Plan{{}}, proof.Options{}); !errors.Is(err, interception.ErrName) {
		t.Errorf("of an invalid plan: %v", err)
	}
}

// TestCoversWhatIsDropped has a state in which a chain that no plan can have drops new connections:
// nothing bypasses the proxy.
func TestCoversWhatIsDropped(t *testing.T) {
	t.Parallel()
	begins := interception.Match{State: interception.Not(interception.StateEstablished | interception.StateRelated)}
	guard := interception.Table{Kind: interception.Filter}
	for _, hook := range []interception.Hook{interception.Input, interception.Output} {
		guard.Entries = append(guard.Entries, interception.Entry{Hook: hook, Chain: "0-guard"})
	}
	guard.Chains = []interception.Chain{{Name: "0-guard", Rules: []interception.Rule{{Match: begins, Action: interception.Drop{}}}}}
	state := interception.State{Owner: "golden-mesh", Objects: []interception.Object{guard}}
	golden := goldenPlans(t)
	plans := []*interception.Plan{golden["dns"], golden["default"]}
	if got, err := proof.Covers(state, plans, proof.Options{}); err != nil || got.Answer != proof.Yes {
		t.Errorf("%v, %v", got, err)
	}
	guard.Entries = guard.Entries[:1]
	state.Objects[0] = guard
	if got, err := proof.Covers(state, plans, proof.Options{}); err != nil || got.Answer != proof.No || got.Outcomes[2].Verdict != trace.Sent {
		t.Errorf("%v, %v", got, err)
	}
	guard.Chains[0].Rules[0].Action = interception.Opaque{Text: "something"}
	guard.Entries = append(guard.Entries, interception.Entry{Hook: interception.Output, Chain: "0-guard"})
	state.Objects[0] = guard
	if got, err := proof.Covers(state, plans, proof.Options{}); err != nil || got.Answer != proof.Unknown || len(got.Undecoded) == 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestCoversAgreesWithTrace tries random sidecars: if the answer is Yes, trace finds no packet that
// bypasses the proxy.
func TestCoversAgreesWithTrace(t *testing.T) {
	t.Parallel()
	answers := map[proof.Answer]int{}
	for seed := range *triples {
		choose := sample.Seeded(seed)
		pod := sample.Pod{Redirect: sample.Redirect(choose), Addresses: []netip.Addr{
			netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2"),
		}}
		plans := threeSidecars(choose, pod.Redirect)
		if plans == nil {
			continue
		}
		world := proof.World(plans...)
		got, err := proof.Covers(plans[2], plans[:2], proof.Options{World: world})
		if err != nil {
			t.Fatal(err)
		}
		answers[got.Answer]++
		for range 50 {
			packet := pod.Packet(choose)
			if socket, _ := packet.From.(trace.Socket); socket.Mark == 0 && got.Answer == proof.Yes && passes(t, world, plans, packet) {
				t.Errorf("seed %d: yes, and %s goes past the proxy", seed, packet)
			}
		}
	}
	if answers[proof.Yes] == 0 || answers[proof.No] == 0 {
		t.Errorf("got %v: these redirects test too little", answers)
	}
}

// threeSidecars returns plans of which the third may capture what the others do; nil if a plan is
// not possible.
func threeSidecars(choose sample.Choices, first sidecar.Redirect) []*interception.Plan {
	redirects := []sidecar.Redirect{first, sample.Redirect(choose), sample.Redirect(choose)}
	if choose(2) == 0 {
		redirects[2] = redirects[1]
		redirects[2].Inbound, redirects[2].DNS = first.Inbound, first.DNS
	}
	var plans []*interception.Plan
	for _, r := range redirects {
		plan, err := sidecar.Plan(r, interception.Facts{IPv6: true}, "random-mesh")
		if err != nil {
			return nil
		}
		plans = append(plans, plan)
	}
	return plans
}

// passes reports whether all plans but the last capture a packet, and a socket other than the
// proxy's gets it under the last one.
func passes(t *testing.T, world trace.World, plans []*interception.Plan, packet trace.Packet) bool {
	t.Helper()
	for i, plan := range plans {
		world.Namespaces[0].Plans = []*interception.Plan{plan}
		o, err := trace.Trace(world, packet)
		if err != nil {
			t.Fatal(err)
		}
		captured := o.Verdict == trace.Delivered && o.Listener.Proxy
		if i == len(plans)-1 {
			return !captured && (o.Verdict == trace.Delivered || o.Verdict == trace.Sent || o.Verdict == trace.Refused)
		}
		if !captured {
			return false
		}
	}
	return false
}
