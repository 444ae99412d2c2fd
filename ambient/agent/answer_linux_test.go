// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// TestPluginWaitsForItsPodOnly enrols a new sandbox while whatever the plugin need not wait for
// takes for ever: a look at a namespace that the runtime has just made, and one for another agent's
// rules.
func TestPluginWaitsForItsPodOnly(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	answered := make(chan struct{})
	n.options.Dataplane = &patient{Dataplane: n.dataplane, host: n.options.Host, answered: answered}
	n.options.TakeOver = []ForeignDataplane{&patientForeign{ForeignDataplane: foreignDataplanes(t)[0], answered: answered}}
	pod := n.pod("a")
	delete(n.paths, "a") // a search would find it before the plugin hands it over
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.arrive(a, pod.Path(), "one")
	close(answered)
	n.connect(pod, 1)
	n.awaitPods(a, "that all is done", func(all []Pod) bool {
		return len(all) == 1 && all[0].Step == "" && all[0].Err == nil
	})
}

// patient looks at a pod's namespace when the plugin is answered, and at the host's at once.
type patient struct {
	interception.Dataplane

	host     *interception.Netns
	answered <-chan struct{}
}

func (p *patient) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	if ns.ID() == p.host.ID() {
		return p.Dataplane.Observe(ctx, ns, owner)
	}
	return whenAnswered(ctx, p.answered, func() (interception.State, error) { return p.Dataplane.Observe(ctx, ns, owner) })
}

// patientForeign does likewise for other agents' rules.
type patientForeign struct {
	ForeignDataplane

	answered <-chan struct{}
}

func (p *patientForeign) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	return whenAnswered(ctx, p.answered, func() (interception.State, error) { return p.ForeignDataplane.Observe(ctx, ns, owner) })
}

func whenAnswered(ctx context.Context, answered <-chan struct{}, do func() (interception.State, error)) (interception.State, error) {
	select {
	case <-answered:
		return do()
	case <-ctx.Done():
		return interception.State{}, context.Cause(ctx)
	}
}
