// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/testlog"
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

// TestStartingPodOvertakes enrols a new sandbox while a look at a pod that runs takes for ever, and
// no other such look may go on beside it.
func TestStartingPodOvertakes(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	running, starting := n.pod("b"), n.pod("a")
	delete(n.paths, "a") // a search would find it before the plugin hands it over
	begun, answered := make(chan struct{}, 1), make(chan struct{})
	n.options.Parallel, n.options.Dataplane = 1, &occupied{Dataplane: n.dataplane, by: identify(running.File()), begun: begun, answered: answered}
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"), object("b"))
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), testlog.Patience)
	defer cancel()
	if decision, err := n.hand(ctx, a, "a", starting); err != nil || !decision.Capture {
		t.Errorf("%v, %v", decision, err)
	}
	close(answered)
	n.connect(starting, 1)
}

// occupied begins to look at one namespace, and goes on when the plugin is answered.
type occupied struct {
	interception.Dataplane

	by       interception.NetnsID
	begun    chan<- struct{}
	answered <-chan struct{}
}

func (o *occupied) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	look := func() (interception.State, error) { return o.Dataplane.Observe(ctx, ns, owner) }
	if ns.ID() != o.by {
		return look()
	}
	select {
	case o.begun <- struct{}{}:
	default: // it has begun before
	}
	return whenAnswered(ctx, o.answered, look)
}
