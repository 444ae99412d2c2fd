// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
)

// vanish ends a pod's sandbox: nothing on the node leads to it any more.
func (n *node) vanish(uid string) {
	n.t.Helper()
	all, err := filepath.Glob(filepath.Join(n.made.Roots().Proc, "*", "cgroup"))
	n.harm(err)
	for _, file := range all {
		text, err := os.ReadFile(file)
		n.harm(err)
		if string(text) == fakenode.Cgroup(uid, "cri-containerd") {
			n.harm(os.RemoveAll(filepath.Dir(file)))
		}
	}
}

// renewed gives a proxy's pod another sandbox, with other addresses, in which a proxy listens.
func (n *node) renewed(pod ambient.Pod) (ambient.Pod, *nodes.Proxy) {
	n.t.Helper()
	n.vanish(pod.UID)
	n.places[pod.UID] = n.made.NewPod(pod.UID, families...)
	pod.Addresses = n.places[pod.UID].Addresses
	return pod, startOn(n, pod)
}

// TestSandboxOfTheProxyIsRenewed has the runtime replace the sandbox of the proxy's pod: while no
// agent runs, and while one runs that is not told in between that the pod was not ready. The proxy
// in the new sandbox takes over, also after another start, and nothing is left of the former one.
func TestSandboxOfTheProxyIsRenewed(t *testing.T) {
	t.Parallel()
	for name, runs := range map[string]bool{"no agent runs": false, "an agent runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, backends(t)["nftables"])
			web, late := n.pod(), n.pod()
			proxyPod, former := n.proxy()
			_, end := n.run()
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			if !runs {
				end()
			}
			proxyPod, proxy := n.renewed(proxyPod)
			former.Stop()
			if !runs {
				_, end = n.run()
			}
			n.feed <- told(proxyPod, web)
			n.eventually("the proxy in the new sandbox takes connections", n.holds(web, proxy, captured))
			n.eventually("one proxy has interfaces", func() bool { return strings.Count(n.dump(), "link istio") == 2 })
			end()
			n.run()
			n.feed <- told(proxyPod, web, late)
			n.awaitStatus(late.UID, ambient.StatusEnabled)
			n.wantWay(late, proxy, captured)
			n.wantWay(web, proxy, captured)
		})
	}
}

// TestWithdrawalAfterTheProxyHasEnded withdraws all from a node whose proxy's sandbox ended, or was
// replaced, while no agent ran, and of which no feed tells.
func TestWithdrawalAfterTheProxyHasEnded(t *testing.T) {
	t.Parallel()
	for name, renewed := range map[string]bool{"ended": false, "replaced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, backends(t)["nftables"])
			web := n.pod()
			proxyPod, proxy := n.proxy()
			_, end := n.run()
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			end()
			proxy.Stop()
			n.vanish(proxyPod.UID)
			if renewed {
				n.renewed(proxyPod)
			}
			a, _ := n.run()
			patience, enough := context.WithTimeout(t.Context(), 30*time.Second)
			defer enough()
			if err := a.Withdraw(patience, func(agent.Pod) {}); err != nil {
				t.Fatal(err)
			}
			if dump := n.dump(); strings.Contains(dump, "link istio") || strings.Contains(dump, string(owner)) {
				t.Errorf("on the host is left:\n%s", dump)
			}
			if _, err := os.Stat(n.options.State); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the state file is still there: %v", err)
			}
		})
	}
}

// TestProxyAfterAFailedChange has the host refuse to be without a proxy for a while. The next proxy
// then serves.
func TestProxyAfterAFailedChange(t *testing.T) {
	t.Parallel()
	dataplane := &meddled{backend: backends(t)["nftables"]}
	n := newNode(t, dataplane)
	refusal := errors.New("not now")
	dataplane.meddle = func(*interception.Plan) error { return refusal }
	web := n.pod()
	first, former := n.proxy()
	n.run()
	n.feed <- told(first, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	dataplane.armed.Store(true)
	former.Stop()
	n.feed <- ambient.Change{Gone: []string{first.UID}}
	n.hostErrorIs(refusal.Error())
	dataplane.armed.Store(false)
	second, proxy := n.proxy()
	n.feed <- ambient.Change{Pods: []ambient.Pod{second}}
	n.eventually("the second proxy takes connections", n.holds(web, proxy, captured))
}

// TestProxyThatWasNotIntroduced starts an agent with a state file that tells of a second proxy
// whose plan was not applied yet, and which the kernel refuses: the former one serves on.
func TestProxyThatWasNotIntroduced(t *testing.T) {
	t.Parallel()
	n, dataplane := newMeddled(t, obstacles()["a kernel without TPROXY"])
	web := n.pod()
	former, proxy := n.proxy()
	next, newer := n.proxy()
	_, end := n.run()
	n.feed <- told(former, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	end()
	n.note(next, 1)
	dataplane.armed.Store(true)
	n.run()
	n.feed <- told(former, next, web)
	n.hostErrorIs("the kernel has no TPROXY")
	n.wantWay(web, proxy, captured)
	dataplane.armed.Store(false)
	n.eventually("the newer proxy takes connections", n.holds(web, newer, captured))
	n.await("the status of each agent", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.statuses[web.UID]) > 1
	})
	n.wantStatuses(web, ambient.StatusEnabled, ambient.StatusEnabled)
}

// note adds a proxy of a generation to the state file, as an agent does before it changes anything.
func (n *node) note(pod ambient.Pod, generation uint8) {
	n.t.Helper()
	text, err := os.ReadFile(n.options.State)
	n.harm(err)
	type proxy struct {
		UID       string               `json:"uid"`
		Namespace string               `json:"namespace"`
		Name      string               `json:"name"`
		Netns     interception.NetnsID `json:"netns"`
		Proxy     ambient.NodeProxy    `json:"proxy"`
	}
	var state struct {
		Version int                `json:"version"`
		Owner   interception.Owner `json:"owner"`
		Proxies []proxy            `json:"proxies"`
	}
	n.harm(json.Unmarshal(text, &state))
	added := proxy{pod.UID, pod.Namespace, pod.Name, n.places[pod.UID].Netns.ID(), state.Proxies[0].Proxy}
	added.Proxy.Addresses, added.Proxy.Generation, added.Proxy.Namespace = pod.Addresses, generation, fmt.Sprint("proxy-", generation)
	state.Proxies = append(state.Proxies, added)
	text, err = json.Marshal(state)
	n.harm(err)
	n.harm(os.WriteFile(n.options.State, text, 0o600))
}

// TestFormerProxyCannotBeKept has another program remove the rules of a former proxy, which the
// kernel then refuses. The present proxy serves, and the pods stay enabled.
func TestFormerProxyCannotBeKept(t *testing.T) {
	t.Parallel()
	n, dataplane := newMeddled(t, obstacles()["a kernel without TPROXY"])
	web := n.pod()
	former, _ := n.proxy()
	next, newer := n.proxy()
	a, _ := n.run()
	n.feed <- told(former, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.feed <- ambient.Change{Pods: []ambient.Pod{next}}
	n.eventually("the newer proxy takes connections", n.holds(web, newer, captured))
	dataplane.armed.Store(true)
	n.harm(n.options.Dataplane.Remove(t.Context(), n.places[former.UID].Netns, owner))
	n.hostErrorIs("keep the rules of the proxy mesh/" + former.Name)
	if got := a.Status().Proxy.Connections; got != 1 {
		t.Errorf("%d proxies serve, want the present one", got)
	}
	late := n.pod()
	n.feed <- ambient.Change{Pods: []ambient.Pod{late}}
	n.awaitStatus(late.UID, ambient.StatusEnabled)
	n.wantWay(late, newer, captured)
	n.wantStatuses(web, ambient.StatusEnabled)
}

// TestDNSAfterARestart switches the capture of DNS on and off while no agent runs.
func TestDNSAfterARestart(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web := n.pod()
	proxyPod, _ := n.proxy()
	for _, dns := range []bool{false, true, false} {
		n.options.DNS = dns
		_, end := n.run()
		n.feed <- told(proxyPod, web)
		n.awaitStatus(web.UID, ambient.StatusEnabled)
		n.eventually("the rules are those of the setting", func() bool { return strings.Contains(n.dump(), "15053") == dns })
		end()
	}
}
