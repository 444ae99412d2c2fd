// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
)

// TestPodComesBackWhileTheProxyForgetsIt takes a pod into the mesh again before the proxy has
// answered that it has forgotten the pod. The proxy is told of it at once: the agent does not take
// it for one that has lost the pod's listeners.
func TestPodComesBackWhileTheProxyForgetsIt(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod("a")
	forgets, observe := make(chan struct{}, 1), n.options.Observe
	var lost atomic.Bool
	n.options.Observe = func(p Pod) {
		if p.Seen.Proxy == ambient.ProxyLost {
			lost.Store(true)
		}
		if p.Step == ambient.StepWithdraw {
			select {
			case forgets <- struct{}{}:
			default: // the test knows
			}
		}
		observe(p)
	}
	a, _ := n.run()
	n.startProxy(ambienttest.StartOptions{ProxyOptions: ambienttest.ProxyOptions{
		Socket: n.options.Socket, Faults: ambienttest.Faults{LateAck: 300 * time.Millisecond},
	}})
	n.feed <- told(object("a"))
	n.awaitSelection(a, "a")
	n.feed <- told(optedOut("a"))
	<-forgets
	n.feed <- told(object("a"))
	n.awaitPods(a, "pod a, which the proxy serves", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Wanted.Enrolled && pods[0].Step == "" && pods[0].Seen.Proxy == ambient.ProxyServes
	})
	if lost.Load() {
		t.Error("the proxy is said to have lost the pod's listeners")
	}
}
