// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// ErrEnded is wrapped by the error of [Agent.Enrol] if the container runtime has ended the pod's
// sandbox before the pod was enrolled in it.
var ErrEnded = roster.ErrEnded

// Leave gives a sandbox up that the container runtime ends: its addresses leave the host's sets,
// the proxy forgets the pod, and the agent closes the namespace and forgets the record. It reports
// whether the agent held this very sandbox. It is that of a pod's open or recorded namespace or,
// without a file, the one that Containers names. A pod has several sandboxes in its life, and a
// request about an earlier one changes nothing; nor does one about a pod that the agent does not
// know, or one with addresses of which the pod has none.
//
// Leave returns as soon as the addresses are out of the sets. A pod that the feed goes on telling
// of is enrolled again in its next sandbox: when the plugin hands that over, or when the feed tells
// of an address that the former one did not have. After Options.Round the agent searches for it.
//
// The caller closes the file, which may be nil. The error wraps [ErrStopped], or the cause of a
// context that has ended; the agent goes on after such an end.
func (a *Agent) Leave(ctx context.Context, pod podnetns.Pod, file *os.File) (held bool, err error) {
	asked, err := a.depart(pod, identify(file))
	if err != nil {
		return false, fmt.Errorf("give up the sandbox of pod %s: %w", pod, err)
	}
	for _, d := range asked {
		select {
		case <-d.done:
			held = held || d.held
		case <-a.stopped:
			return held, fmt.Errorf("give up the sandbox of pod %s: %w", pod, ErrStopped)
		case <-ctx.Done():
			return held, fmt.Errorf("give up the sandbox of pod %s: %w", pod, context.Cause(ctx))
		}
	}
	return held, nil
}

// departure is the end of a sandbox.
type departure struct {
	pod   podnetns.Pod
	netns interception.NetnsID // zero if the runtime has not named it
	held  bool                 // set before done is closed
	done  chan struct{}
}

// depart hands a departure to each worker that may have the sandbox: that of the pod's UID, and
// those of its name, as a static pod has another UID here than in the runtime.
func (a *Agent) depart(pod podnetns.Pod, netns interception.NetnsID) (asked []*departure, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.start == nil {
		return nil, ErrStopped
	}
	for uid, w := range a.workers {
		names, known := w.current(), a.roster.Pods[uid]
		named := names.Namespace == pod.Namespace && names.Name == pod.Name || known.Namespace == pod.Namespace && known.Name == pod.Name
		if uid == pod.UID || named {
			d := &departure{pod: pod, netns: netns, done: make(chan struct{})}
			asked = append(asked, d)
			w.hand(handed{departure: d})
		}
	}
	return asked, nil
}

// sandbox is what a worker remembers of a sandbox that has ended.
type sandbox struct {
	netns     interception.NetnsID
	container string
	addresses []netip.Addr
	ended     time.Time
}

// is reports whether a departure is about the sandbox.
func (s sandbox) is(d *departure) bool {
	if d.netns != (interception.NetnsID{}) && s.netns != (interception.NetnsID{}) {
		return d.netns == s.netns
	}
	return s.container != "" && slices.Contains(d.pod.Containers, s.container)
}

// sandbox returns the one that the worker holds.
func (w *worker) sandbox() sandbox {
	s := sandbox{container: w.container, addresses: w.addresses()}
	switch {
	case w.namespace != nil:
		s.netns = w.namespace.ID()
	case w.recorded:
		s.netns = w.recordedIn
	}
	return s
}

// takeDeparture gives the sandbox up if it is the one that ends.
func (w *worker) takeDeparture(ctx context.Context, d *departure) error {
	own := w.sandbox()
	switch {
	case w.ended != nil && w.ended.is(d):
		w.ended.ended = time.Now() // the runtime tries again, because another plugin has failed
	case own.is(d) && (len(d.pod.IPs) == 0 || len(own.addresses) == 0 || shareAddress(own.addresses, d.pod.IPs)):
		if err := w.leaveSets(ctx); err != nil {
			return fmt.Errorf("remove the addresses of a sandbox that ends from the host's sets: %w", err)
		}
		own.ended = time.Now()
		w.ended, d.held = &own, true
		for _, e := range w.waiting {
			close(e.Ended)
		}
		w.waiting, w.event, w.plan, w.container = nil, nil, nil, ""
	}
	w.taken()
	close(d.done)
	return nil
}

func (w *worker) leaveSets(ctx context.Context) error {
	if !w.agent.sets.holdsAny(w.uid) {
		return nil
	}
	return w.bounded(ctx, func() error { return w.edit(func() error { return w.agent.sets.leave(ctx, w.uid) }) })
}

// awaitsSandbox reports whether the pod's sandbox has ended, and no other one is known to have
// begun.
func (w *worker) awaitsSandbox() bool {
	if w.ended == nil {
		return false
	}
	begun := len(w.ended.addresses) > 0 && slices.ContainsFunc(w.pod.Addresses, func(a netip.Addr) bool {
		return !slices.Contains(w.ended.addresses, a)
	})
	if begun || w.untilSearch() <= 0 {
		w.ended = nil
	}
	return w.ended != nil
}

// untilSearch returns how long the worker does not search for another sandbox.
func (w *worker) untilSearch() time.Duration {
	return w.agent.options.Round - time.Since(w.ended.ended)
}

// shareAddress reports whether two lists have an address in common, also in the form of IPv6.
func shareAddress(one, other []netip.Addr) bool {
	return slices.ContainsFunc(one, func(a netip.Addr) bool {
		return slices.ContainsFunc(other, func(b netip.Addr) bool { return a.Unmap() == b.Unmap() })
	})
}

// withoutSandbox is what is wanted of a pod whose sandbox has ended.
func withoutSandbox() ambient.Wanted { return ambient.Wanted{Gone: true} }
