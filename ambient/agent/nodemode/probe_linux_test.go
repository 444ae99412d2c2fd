// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/nodemode"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestE1UnmarkedConnections has another program take the mark away that the mesh's rules set. Sets,
// rules and listeners are as planned all the while. A pod that was enabled is pending then, one
// that comes does not become enabled, and the plugin is not kept waiting. All is well once the
// program's rules are gone.
func TestE1UnmarkedConnections(t *testing.T) {
	t.Parallel()
	others := unmarking(t)
	for name, dataplane := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dataplane)
			var unseen atomic.Bool // on a busy machine
			n.options.WithoutProbes = func(err error) {
				t.Log(err)
				unseen.Store(true)
			}
			web, late := n.pod(), n.pod()
			proxyPod, proxy := n.proxy()
			a, _ := n.run()
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.wantWay(web, proxy, captured)

			program := backends(t)["nftables"]
			n.harm(program.Apply(t.Context(), n.options.Host, others))
			n.await("an error that connections are not marked", isUnmarked(a, web))
			n.wantWay(web, proxy, refused) // nothing leaves in clear text
			n.feed <- ambient.Change{Pods: []ambient.Pod{late}}
			n.await("the same of a pod that has come", isUnmarked(a, late))
			pod := podnetns.Pod{Namespace: late.Namespace, Name: late.Name, UID: late.UID, IPs: late.Addresses, Containers: []string{"first"}}
			if _, err := a.Enrol(t.Context(), pod, nil); err != nil {
				t.Errorf("the plugin is told: %v", err)
			}
			n.awaitSeen(a, web.UID, ambient.StatusPending)
			n.awaitStatus(late.UID, ambient.StatusPending)
			n.mu.Lock()
			if slices.Contains(n.statuses[late.UID], ambient.StatusEnabled) && !unseen.Load() {
				t.Errorf("a pod whose connections are not marked has the statuses %v", n.statuses[late.UID])
			}
			n.mu.Unlock()

			n.harm(program.Remove(t.Context(), n.options.Host, others.Owner))
			n.awaitSeen(a, web.UID, ambient.StatusEnabled)
			n.awaitStatus(late.UID, ambient.StatusEnabled)
			n.wantWay(web, proxy, captured)
			n.wantStillEnabled(web)
		})
	}
}

// unmarking returns the rules of a program that takes the mark away after the mesh has set it.
func unmarking(t *testing.T) *interception.Plan {
	t.Helper()
	plan, err := interception.Build("test-other", func(b *interception.Builder) {
		c := b.Mangle("other")
		c.EntryAt(interception.Prerouting, 100, interception.Match{}, "later than the mesh")
		c.Do("unmark", interception.Match{}, interception.SetMark{Mark: interception.WholeMark(0)}, "takes marks away")
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// isUnmarked reports whether the agent says of a pod that its connections are not marked.
func isUnmarked(a *nodemode.Agent, pod ambient.Pod) func() bool {
	return func() bool {
		of := a.Status(pod.UID).Pods
		return len(of) == 1 && errors.Is(of[0].Err, nodemode.ErrMark)
	}
}

// TestUnmarkedPodGoesBack has a pod move here that is captured in its own namespace, while another
// program takes the mark away: it is captured there alone again, and keeps its status.
func TestUnmarkedPodGoesBack(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	var over atomic.Bool // the pod's turn
	n.options.Held = func(string) bool { return over.Load() }
	n.options.InPod = func(string) bool { return true }
	n.options.WithoutProbes = func(err error) { t.Log(err) }
	web := enabled(n.pod())
	proxyPod, _ := n.proxy()
	n.harm(backends(t)["nftables"].Apply(t.Context(), n.options.Host, unmarking(t)))
	a, _ := n.run()
	n.feed <- told(proxyPod, web)
	n.await("an error that connections are not marked", isUnmarked(a, web))
	over.Store(true)
	a.Look(web.UID)
	n.await("the pod waits for another turn", func() bool {
		of := a.Status(web.UID).Pods
		return len(of) == 1 && of[0].Step == ambient.StepAwaitTurn && !of[0].Seen.InSets
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.statuses[web.UID]) > 0 {
		t.Errorf("the statuses %v are written", n.statuses[web.UID])
	}
}

// TestUntrackedLoopback has another program exclude lo from tracking: packets come back without the
// mark, and that shows nothing.
func TestUntrackedLoopback(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	reasons := make(chan error, 10)
	n.options.WithoutProbes = func(err error) { reasons <- err }
	sandboxtest.Run(t, n.options.Host.File(), "", strings.Fields("iptables-nft -t raw -A PREROUTING -i lo -j CT --notrack")...)
	sandboxtest.Run(t, n.options.Host.File(), "", strings.Fields("ip6tables-nft -t raw -A PREROUTING -i lo -j CT --notrack")...)
	web := n.pod()
	proxyPod, proxy := n.proxy()
	n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.wantWay(web, proxy, captured)
	if err := <-reasons; !strings.Contains(err.Error(), "from being tracked") {
		t.Errorf("the agent tells %v", err)
	}
}

// TestUnseenProbes has the kernel drop the agent's packets: the agent tells that, and goes by the
// sets and rules.
func TestUnseenProbes(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	n.harm(namespace.Run(n.options.Host.File(), func() error {
		return os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("1"), 0)
	}))
	reasons := make(chan error, 10)
	n.options.WithoutProbes = func(err error) { reasons <- err }
	web := n.pod()
	proxyPod, _ := n.proxy()
	n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	if err := <-reasons; !strings.Contains(err.Error(), "did not come back") {
		t.Errorf("the agent tells %v", err)
	}
}
