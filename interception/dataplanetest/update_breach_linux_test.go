// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/testing/victim"
)

// updated is a dataplane with another Apply.
type updated struct {
	interception.Dataplane
	apply func(d interception.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error
}

func (u updated) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	return u.apply(u.Dataplane, ctx, ns, p)
}

// updateFaults are faults, by the failures that Updates reports.
var updateFaults = map[string]func(d interception.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error{
	"is captured by both plans": func(d interception.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
		if err := d.Remove(ctx, ns, p.Owner); err != nil {
			return err
		}
		if err := gap(ctx, ns); err != nil {
			return err
		}
		return d.Apply(ctx, ns, p)
	},
	"does what is left capture": func(d interception.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
		if err := d.Apply(ctx, ns, changed(p, withoutPort)); err != nil {
			return err
		}
		if err := gap(ctx, ns); err != nil {
			return err
		}
		return d.Apply(ctx, ns, p)
	},
	"only in this one": func(d interception.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
		state, err := d.Observe(ctx, ns, p.Owner)
		if err == nil && len(state.Objects) > 0 {
			p = changed(p, func(objects []interception.Object) []interception.Object {
				return append([]interception.Object{mark}, objects...)
			})
		}
		return d.Apply(ctx, ns, p)
	},
}

// connectionsInGap is how many connections are opened and closed in a gap. When it began at most
// four were on their way, which count twice if both of their ends are in the pod: with more than
// eight, some began and ended within the gap. With many more, a random kill most often falls there.
const connectionsInGap = 64

// gap returns when so many connections were opened in a namespace. Connections are only opened
// while a victim is at work: elsewhere it returns at once.
func gap(ctx context.Context, ns *interception.Netns) error {
	if _, is := victim.Task(); !is {
		return nil
	}
	began, err := closedConnections(ns)
	for closed := began; err == nil && closed < began+connectionsInGap; closed, err = closedConnections(ns) {
		select {
		case <-time.After(time.Millisecond): // the kernel has no events for its counters
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}

// closedConnections returns the kernel's count of connections that an end in a namespace closed by
// a reset, as probes do (RFC 1213, tcpEstabResets).
func closedConnections(ns *interception.Netns) (n int, err error) {
	var text []byte
	if err := namespace.Run(ns.File(), func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	}); err != nil {
		return 0, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if i := slices.Index(names, "EstabResets"); fields[0] == "Tcp:" && i >= 0 {
			return strconv.Atoi(fields[i])
		}
		names = fields
	}
	return 0, fmt.Errorf("no EstabResets in %s", text)
}

// withoutPort excludes packets to a port that no probe has.
func withoutPort(objects []interception.Object) []interception.Object {
	for i, object := range objects {
		table, is := object.(interception.Table)
		if !is || table.Kind != interception.NAT {
			continue
		}
		table.Chains = slices.Clone(table.Chains)
		for j, chain := range table.Chains {
			table.Chains[j].Rules = slices.Insert(slices.Clone(chain.Rules), 0, interception.Rule{
				ID: interception.RuleID("port." + chain.Name), Action: interception.Return{}, Why: "nobody asks for it",
				Match: interception.Match{L4: interception.TCP().To(interception.Ports(1))},
			})
		}
		objects[i] = table
	}
	return objects
}

// TestUpdateBreach fails on request.
func TestUpdateBreach(t *testing.T) {
	t.Parallel()
	fault, asked := updateFaults[*breach]
	if !asked {
		return
	}
	dataplanetest.Updates(t, dataplanetest.UpdateOptions{New: func(t testing.TB) interception.Dataplane {
		t.Helper()
		return updated{backends(t)[0].dataplane, fault}
	}})
}

// TestEachUpdateBreachIsFound has dataplanes that let connections pass, leave a state that does,
// and leave objects.
func TestEachUpdateBreachIsFound(t *testing.T) {
	t.Parallel()
	for text := range updateFaults {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestUpdateBreach$", "-breach="+text)
			output, err := command.CombinedOutput()
			if err == nil || !strings.Contains(string(output), text) {
				t.Errorf("%v: not found:\n%s", err, output)
			}
		})
	}
}
