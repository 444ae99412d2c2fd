// SPDX-License-Identifier: Apache-2.0

package interception_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
)

// capturing returns a plan with each way to capture, and with what must stay when it drains.
func capturing(t *testing.T) *interception.Plan {
	t.Helper()
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		tcp := interception.Match{L4: interception.TCP()}
		nat := b.NAT("output")
		nat.Entry(interception.Output, tcp, "connections")
		nat.Do("exclude", interception.Match{L4: interception.TCP().To(interception.Ports(25))}, interception.Return{}, "excluded")
		nat.Do("capture", interception.Match{L4: interception.TCP(), State: interception.Is(interception.StateNew)},
			interception.RedirectTo{Port: 15001}, "captured")
		nat.Do("capture.all", tcp, interception.RedirectTo{Port: 15002}, "captured")
		mangle := b.Mangle("inbound")
		mangle.Entry(interception.Prerouting, tcp, "connections")
		mangle.Do("mark", tcp, interception.SetMark{Mark: interception.WholeMark(1)}, "marked")
		mangle.Do("hand", tcp, interception.TProxyTo{Port: 15006, Mark: interception.WholeMark(2)}, "handed over")
		b.PolicyRule(interception.PolicyRule{
			ID: "rule", Family: interception.IPv4, Mark: interception.WholeMark(2), Table: 100, Priority: 100, Why: "replies",
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestDraining(t *testing.T) {
	t.Parallel()
	plan := capturing(t)
	before := plan.String()
	draining := plan.Draining()
	if err := draining.Validate(); err != nil {
		t.Error(err)
	}
	const want = `plan my-mesh
policy rule v4 priority 100 mark 0x2 table 100  # rule: replies
table nat
  hook output: tcp -> jump output  # nat.output.output: connections
  chain output
    tcp dport 25 -> return  # exclude: excluded
    tcp state new -> return  # capture: nothing new is captured any more
    tcp state new,related -> return  # capture.all: nothing new is captured any more
table mangle
  hook prerouting: tcp -> jump inbound  # mangle.prerouting.inbound: connections
  chain inbound
    tcp -> set mark 0x1  # mark: marked
    state new -> return  # tproxy.drain.inbound: nothing new is captured any more
    tcp -> tproxy to :15006 mark 0x2  # hand: handed over
`
	if diff := cmp.Diff(want, draining.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if plan.String() != before {
		t.Errorf("Draining changed the plan:\n%s", plan)
	}
	if again := draining.Draining(); again != draining {
		t.Errorf("a draining plan is changed again:\n%s", again)
	}
	if sparing := plan.Sparing().Draining(); sparing.Validate() != nil || sparing.Draining() != sparing {
		t.Errorf("a draining plan that spares older connections:\n%s", sparing)
	}
}

func TestDrainingLeavesWhatCapturesNothing(t *testing.T) {
	t.Parallel()
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		c := b.NAT("output")
		c.Entry(interception.Output, interception.Match{}, "connections")
		c.Do("exclude", interception.Match{}, interception.Return{}, "excluded")
	})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Draining() != plan {
		t.Errorf("got\n%s", plan.Draining())
	}
}
