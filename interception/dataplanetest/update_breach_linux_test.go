// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
)

// updated is a dataplane with another Apply.
type updated struct {
	interception.Dataplane
	apply func(d interception.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error
}

func (u updated) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	return u.apply(u.Dataplane, ctx, ns, p)
}

// updateFaults are faults by what Updates says about them.
var updateFaults = map[string]func(d interception.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error{
	"is captured by both plans": func(d interception.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
		if err := d.Remove(ctx, ns, p.Owner); err != nil {
			return err
		}
		<-time.After(50 * time.Millisecond) // a gap that no prober misses
		return d.Apply(ctx, ns, p)
	},
	"does what is left capture": func(d interception.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
		without := changed(p, func(objects []interception.Object) []interception.Object {
			if table, is := objects[len(objects)-1].(interception.Table); is {
				table.Entries = table.Entries[:1]
				objects[len(objects)-1] = table
			}
			return objects
		})
		if err := d.Apply(ctx, ns, without); err != nil {
			return err
		}
		<-time.After(50 * time.Millisecond)
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

// TestUpdateBreach fails, when it is asked to.
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

// TestEachUpdateBreachIsFound has dataplanes that let connections pass, leave a state that does, and leave things behind.
func TestEachUpdateBreachIsFound(t *testing.T) {
	t.Parallel()
	for text := range updateFaults {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUpdateBreach$", "-breach="+text)
			output, err := command.CombinedOutput()
			if err == nil || !strings.Contains(string(output), text) {
				t.Errorf("%v: not found:\n%s", err, output)
			}
		})
	}
}
