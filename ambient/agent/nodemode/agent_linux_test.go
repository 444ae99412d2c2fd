// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/nodemode"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// TestEnrolAndWithdraw takes a pod into the mesh and out of it, and another one stays outside. Then
// all is withdrawn, and the host is as it was.
func TestEnrolAndWithdraw(t *testing.T) {
	t.Parallel()
	for name, dataplane := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dataplane)
			before := n.dump()
			web, other := n.pod(), n.pod()
			proxyPod, proxy := n.proxy()
			withPods := n.dump()
			a, _ := n.run()
			n.feed <- told(proxyPod, web, out(other))
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.wantMembers(web)
			n.wantWay(web, proxy, captured)
			n.wantWay(other, proxy, direct)
			n.feed <- ambient.Change{Pods: []ambient.Pod{out(web), other}}
			n.awaitStatus(web.UID, ambient.NoStatus)
			n.awaitStatus(other.UID, ambient.StatusEnabled)
			n.wantMembers(other)
			n.wantWay(web, proxy, direct)
			n.wantWay(other, proxy, captured)
			var gone []string
			if err := a.Withdraw(t.Context(), func(p agent.Pod) { gone = append(gone, p.UID) }); err != nil {
				t.Fatal(err)
			}
			if len(gone) != 1 || gone[0] != other.UID {
				t.Errorf("withdrawn: %q, want %s", gone, other.UID)
			}
			n.awaitStatus(other.UID, ambient.NoStatus)
			n.eventually("the proxy counts as gone", func() bool { return a.Status().Proxy.Connections == 0 })
			n.wantWay(other, proxy, direct)
			if after := n.dump(); after != withPods || before == withPods {
				t.Errorf("the host is not as it was:\n%s\nwant\n%s", after, withPods)
			}
			if _, err := os.Stat(n.options.State); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the state file is still there: %v", err)
			}
			a.Readmit()
			n.awaitStatus(other.UID, ambient.StatusEnabled)
			n.wantWay(other, proxy, captured)
		})
	}
}

// TestPluginsEvents enrols a pod by the plugin's event before the feed tells of its addresses, and
// gives it up at the end of its sandbox. What is about an earlier sandbox changes nothing.
func TestPluginsEvents(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web := n.pod()
	proxyPod, proxy := n.proxy()
	a, _ := n.run()
	unaddressed := web
	unaddressed.Addresses = nil
	n.feed <- told(proxyPod, unaddressed)
	pod := podnetns.Pod{Namespace: web.Namespace, Name: web.Name, UID: web.UID, IPs: web.Addresses, Containers: []string{"second"}}
	decision, err := a.Enrol(t.Context(), pod, nil)
	if err != nil || !decision.Capture {
		t.Fatalf("Enrol: %s, %v", decision, err)
	}
	n.wantMembers(web)
	n.wantWay(web, proxy, captured)
	former := pod
	former.Containers = []string{"first"}
	for _, of := range []struct {
		pod  podnetns.Pod
		held bool
	}{{former, false}, {pod, true}, {pod, false}} {
		if held, err := a.Leave(t.Context(), of.pod, nil); err != nil || held != of.held {
			t.Errorf("Leave %v: held %t, %v, want %t", of.pod.Containers, held, err, of.held)
		}
	}
	n.wantMembers()
	n.feed <- ambient.Change{Pods: []ambient.Pod{web}} // late: the address is the former sandbox's
	n.feed <- ambient.Change{Pods: []ambient.Pod{out(proxyPod)}}
	n.feed <- ambient.Change{Pods: []ambient.Pod{proxyPod}}
	n.wantMembers()
	pod.Containers = []string{"third"}
	if _, err := a.Enrol(t.Context(), pod, nil); err != nil {
		t.Fatal(err)
	}
	n.wantMembers(web)
	stranger := podnetns.Pod{Namespace: "shop", Name: "stranger", UID: "stranger", IPs: web.Addresses}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Enrol(ended, stranger, nil); !errors.Is(err, agent.ErrUnknownPod) {
		t.Errorf("Enrol of a pod that the feed has not told of: %v", err)
	}
}

// TestNewPodIsOptedOut has the plugin report a pod that has a status from an earlier sandbox, and
// that leaves the mesh before a proxy has come: the status goes.
func TestNewPodIsOptedOut(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web := enabled(n.pod())
	a, _ := n.run()
	n.feed <- told(web)
	answer := make(chan error, 1)
	go func() {
		decision, err := a.Enrol(t.Context(), podnetns.Pod{Namespace: web.Namespace, Name: web.Name, UID: web.UID, IPs: web.Addresses}, nil)
		if err == nil && decision.Capture {
			err = errors.New("it is in the mesh")
		}
		answer <- err
	}()
	n.await("that the pod waits for a proxy", func() bool {
		return slices.ContainsFunc(a.Pods(), func(p agent.Pod) bool { return p.Step == ambient.StepAwaitProxy })
	})
	n.feed <- told(out(web))
	if err := <-answer; err != nil {
		t.Error(err)
	}
	n.awaitStatus(web.UID, ambient.NoStatus)
}

// TestEventsAboutOneAddress has the plugin give a pod the address of another one, of whose end the
// agent does not hear: it is the later pod's, and the other one's error names that. When the later
// one ends, the address is the other one's again.
func TestEventsAboutOneAddress(t *testing.T) {
	t.Parallel()
	for name, handed := range map[string]bool{"of a pod that the feed tells of": false, "of a pod that the plugin told of": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, backends(t)["nftables"])
			web := n.pod()
			proxyPod, _ := n.proxy()
			next := web
			next.UID, next.Name, next.Addresses = "1c6b2f1e-9d3c-4f7a-8a51-aaaaaaaaaaaa", "next", nil
			a, _ := n.run()
			n.feed <- told(proxyPod, web, next)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			enrol := func(pod ambient.Pod, container string) podnetns.Pod {
				told := podnetns.Pod{Namespace: "shop", Name: pod.Name, UID: pod.UID, IPs: web.Addresses, Containers: []string{container}}
				if _, err := a.Enrol(t.Context(), told, nil); err != nil {
					t.Fatal(err)
				}
				return told
			}
			if handed {
				enrol(web, "first")
			}
			later := enrol(next, "second")
			loses := func() bool {
				return slices.ContainsFunc(a.Status(web.UID).Pods, func(p agentPod) bool { return errorHas(p.Err, "also an address of pod shop/next") })
			}
			n.await("the error of the pod that has lost its address", loses)
			next.Addresses = web.Addresses
			n.wantMembers(next)
			if held, err := a.Leave(t.Context(), later, nil); err != nil || !held {
				t.Errorf("Leave: held %t, %v", held, err)
			}
			n.eventually("the address is the other pod's again", func() bool { return slices.Contains(n.members(), web.Addresses[0].String()+" "+web.UID) })
		})
	}
}

// TestRestart starts the agent again, without a feed and with one: nothing that stands changes.
// Members that are no pod's go when the feed is complete.
func TestRestart(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web, gone := n.pod(), n.pod()
	proxyPod, proxy := n.proxy()
	_, end := n.run()
	n.feed <- told(proxyPod, web, gone)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.awaitStatus(gone.UID, ambient.StatusEnabled)
	end()
	stands := n.dump()
	n.wantWay(web, proxy, captured)
	a, _ := n.run()
	n.eventually("the proxy is known", func() bool { return a.Status().Proxy.Connections == 1 })
	if now := n.dump(); now != stands {
		t.Errorf("the host has changed:\n%s\nwant\n%s", now, stands)
	}
	n.wantWay(web, proxy, captured)
	n.feed <- ambient.Change{Namespaces: told().Namespaces, Pods: []ambient.Pod{web}}
	n.await("the pod is known", func() bool { return len(a.Pods()) == 1 && a.Pods()[0].Step == "" && a.Pods()[0].Wanted.Enrolled })
	n.wantMembers(web, gone)
	n.feed <- ambient.Change{Pods: []ambient.Pod{proxyPod}, Complete: true}
	n.eventually("the stale members are gone", func() bool { return len(n.members()) == len(web.Addresses) })
	n.wantMembers(web)
	n.wantWay(web, proxy, captured)
}

// TestStateOfAnother refuses a state file of another owner, and one that is damaged.
func TestStateOfAnother(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	for _, text := range []string{`{"version":1,"owner":"another"}`, `{"version":2,"owner":"test-ambient"}`, `{`} {
		if err := os.WriteFile(n.options.State, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := nodemode.New(n.options); !errors.Is(err, nodemode.ErrState) {
			t.Errorf("%s: %v, want ErrState", text, err)
		}
	}
}
