// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"syscall"
	"testing"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception"
)

// web is the pod as the agent is told of it.
func web(addresses ...string) event.Pod {
	pod := event.Pod{Namespace: "shop", Name: "web-0", UID: uid, Container: "web-0"}
	for _, address := range addresses {
		pod.Addresses = append(pod.Addresses, netip.MustParseAddr(address))
	}
	return pod
}

// TestAmbientADD enrols a pod, again and again, with the addresses of all kinds of results.
func TestAmbientADD(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result string
		want   event.Pod
	}{
		"both families":  {previous, web("10.244.1.6", "fd00::6")},
		"IPv6 only":      {`{"cniVersion": "1.0.0", "ips": [{"address": "fd00::6/64"}]}`, web("fd00::6")},
		"no prevResult":  {"", web()},
		"no address":     {`{"cniVersion": "1.0.0"}`, web()},
		"an old version": {`{"cniVersion": "0.2.0", "ip4": {"ip": "10.244.1.6/24"}}`, web("10.244.1.6")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			a := n.startAgent(enrolling())
			var want, got syscall.Stat_t
			if err := syscall.Stat(n.netns.Path(), &want); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				result, err := n.cni().AddNetworkList(t.Context(), n.list(test.result), n.runtime("shop", "web-0"))
				if err != nil {
					t.Fatal(err)
				}
				current, err := types100.GetResult(result)
				if err != nil || len(current.IPs) != len(test.want.Addresses) {
					t.Errorf("the result is %v, %v", result, err)
				}
				pods, inodes := a.seen()
				got.Ino = inodes[len(inodes)-1]
				if !reflect.DeepEqual(pods[len(pods)-1], test.want) || got.Ino != want.Ino {
					t.Errorf("the agent was asked about %+v in %d, want %+v in %d", pods, got.Ino, test.want, want.Ino)
				}
			}
			if r := n.reported(); r.Reason != "ambient" || r.Detail != "selected (selector 2)" || r.Captured {
				t.Errorf("the plugin reports %+v", r)
			}
			if n.requests() != nil {
				t.Errorf("the API server was asked for %v", n.requests())
			}
		})
	}
}

// TestAmbientInParallel has 50 pods start at once.
func TestAmbientInParallel(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.startAgent(enrolling())
	list, cni := n.list(previous), n.cni()
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			if _, err := cni.AddNetworkList(t.Context(), list, n.runtime("shop", fmt.Sprintf("web-%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	pods, _ := a.seen()
	names := map[string]bool{}
	for _, pod := range pods {
		names[pod.Name] = true
	}
	if len(pods) != 50 || len(names) != 50 {
		t.Errorf("the agent was asked about %d pods of %d names", len(pods), len(names))
	}
}

// TestAmbientPodOutsideGoesOn has the agent capture no pod: a sidecar is found all the same, and a
// pod without one is left alone.
func TestAmbientPodOutsideGoesOn(t *testing.T) {
	t.Parallel()
	outside := func() *agent { return &agent{decision: interception.Decision{Reason: "not-selected", OfPod: true}} }
	n := newNode(t)
	n.startAgent(outside())
	if r := n.mustAdd(); !r.Captured || r.Reason != "in-mesh" {
		t.Errorf("the pod with a sidecar: %+v", r)
	}
	n = newNode(t)
	a := n.startAgent(outside())
	if r := n.mustAdd(annotated(`{"a": "b"}`)); r.Captured || r.Reason != "not-injected" || n.requests() != nil {
		t.Errorf("the pod without a sidecar: %+v, and the API server was asked for %v", r, n.requests())
	}
	if pods, _ := a.seen(); len(pods) != 1 {
		t.Errorf("the agent was asked %d times", len(pods))
	}
}

// annotated is the setting with the pod's annotations, as the runtime passes it.
func annotated(annotations string) string {
	return `{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": ` + annotations + `}}`
}

// TestAmbientCostsNothing counts the connections to the agent's socket for pods that are certainly
// not in the ambient mesh.
func TestAmbientCostsNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		namespace, name, settings, reason string
	}{
		"an excluded namespace":      {"kube-system", "dns", "{}", "excluded-namespace"},
		"the daemon's own":           {"istio-system", "istio-cni-node-x7k2p", "{}", "own-agent"},
		"the proxy's own":            {"istio-system", "ztunnel-x7k2p", "{}", "ambient-proxy"},
		"the proxy's own by another": {"mesh", "edge-x7k2p", `{"ambient_proxy_namespace": "mesh", "ambient_proxy_name": "edge"}`, "ambient-proxy"},
		"a sidecar":                  {"shop", "web-0", annotated(`{"sidecar.istio.io/status": "{}"}`), "in-mesh"},
		"ambient mode is off":        {"shop", "web-0", `{"ambient_enabled": false, "enablement_selectors": 1}`, "in-mesh"},
		"ambient mode is not there":  {"shop", "web-0", `{"ambient_enabled": null}`, "in-mesh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			a := n.startAgent(enrolling())
			_, err := n.cni().AddNetworkList(t.Context(), n.list(previous, test.settings), n.runtime(test.namespace, test.name))
			if err != nil {
				t.Fatal(err)
			}
			if r := n.reported(); r.Reason != test.reason {
				t.Errorf("the plugin reports %+v, want reason %s", r, test.reason)
			}
			err = n.cni().DelNetworkList(t.Context(), n.list(previous, test.settings), n.runtime(test.namespace, test.name))
			if err != nil {
				t.Error(err)
			}
			if a.outcomes != 0 {
				t.Errorf("the agent was asked %d times", a.outcomes)
			}
		})
	}
}

// TestAmbientProxyByNameOnly: neither the name alone nor the namespace alone is the proxy's.
func TestAmbientProxyByNameOnly(t *testing.T) {
	t.Parallel()
	for _, pod := range [][2]string{{"shop", "ztunnel-x7k2p"}, {"istio-system", "ztunnel-"}, {"istio-system", "ztunnel"}, {"istio-system", "istiod-0"}} {
		n := newNode(t)
		a := n.startAgent(enrolling())
		_, err := n.cni().AddNetworkList(t.Context(), n.list(previous), n.runtime(pod[0], pod[1]))
		if pods, _ := a.seen(); err != nil || len(pods) != 1 {
			t.Errorf("%v: the agent was asked about %v, %v", pod, pods, err)
		}
	}
}

// TestAmbientStaticPod names the pod to the agent by the runtime's UID, wherever the kubelet has it
// from: the agent knows the mirror, which has another UID.
func TestAmbientStaticPod(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"file", "http", "api"} {
		n := newNode(t)
		a := n.startAgent(enrolling())
		n.mustAdd(annotated(`{"kubernetes.io/config.source": "` + source + `"}`))
		if pods, _ := a.seen(); len(pods) != 1 || pods[0].UID != uid {
			t.Errorf("source %s: the agent was asked about %+v, want UID %q", source, pods, uid)
		}
	}
}

// TestE12AmbientRefusesTheHost hands the agent no namespace but the pod's.
func TestE12AmbientRefusesTheHost(t *testing.T) {
	t.Parallel()
	for path, code := range map[string]uint{"/proc/1/ns/net": 132, "/proc/self/exe": 131, "/missing": 130} {
		n := newNode(t)
		a := n.startAgent(enrolling())
		runtime := n.runtime("shop", "web-0")
		runtime.NetNS = path
		_, err := n.cni().AddNetworkList(t.Context(), n.list(previous), runtime)
		wantFailure(t, err, code)
		if a.outcomes != 0 {
			t.Errorf("%s: the agent was asked", path)
		}
	}
}

// TestE4AmbientErrors shows the operator what the agent says, and what to do.
func TestE4AmbientErrors(t *testing.T) {
	t.Parallel()
	for code, test := range map[event.Code]struct {
		want uint
		text string
	}{
		event.CodeUnfinished:     {210, "see whether the proxy (DaemonSet istio-system/ztunnel) runs on this node"},
		event.CodeRefused:        {212, "CNI_NETNS"},
		event.CodeVirtualMachine: {215, "a runtime class without a virtual machine"},
		event.CodeRequest:        {214, "versions of node-ambient and the plugin that fit together"},
		"later":                  {214, "versions of node-ambient and the plugin that fit together"},
	} {
		n := newNode(t)
		n.startAgent(&agent{err: &event.Error{Code: code, Message: "step \"serve\": no proxy has ever connected"}})
		n.mustFail(test.want, []string{"enrol pod shop/web-0 in the ambient mesh", "no proxy has ever connected", test.text})
		if n.requests() != nil {
			t.Errorf("%s: the API server was asked for %v", code, n.requests())
		}
	}
}

// TestAmbientAgentHangs ends the wait with the timeout of the plugin.
func TestAmbientAgentHangs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	listener, err := net.Listen("unix", n.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	n.mustFail(202, []string{n.socket(), "the timeout of 300ms has expired", "the log of node-ambient"}, `{"timeout": "300ms"}`)
}

// TestE14AmbientNeedsNoPath passes the namespace itself: its path may mean nothing to the agent.
func TestE14AmbientNeedsNoPath(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.startAgent(enrolling())
	runtime := n.runtime("shop", "web-0")
	link := filepath.Join(n.runDir, "link")
	if err := os.Symlink(n.netns.Path(), link); err != nil {
		t.Fatal(err)
	}
	runtime.NetNS = link
	var want syscall.Stat_t
	if err := syscall.Stat(n.netns.Path(), &want); err != nil {
		t.Fatal(err)
	}
	_, err := n.cni().AddNetworkList(t.Context(), n.list(previous), runtime)
	if _, inodes := a.seen(); err != nil || len(inodes) != 1 || inodes[0] != want.Ino {
		t.Errorf("got namespaces %v, want %d: %v", inodes, want.Ino, err)
	}
}

func TestAmbientWrongSetting(t *testing.T) {
	t.Parallel()
	for selectors, text := range map[string]string{
		`[{"podSelektor": {}}]`: "podSelektor",
		`[{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}]`: "podSelector: matchExpressions[0]",
		`"ambient"`: "enablement selectors",
	} {
		n := newNode(t)
		a := n.startAgent(enrolling())
		n.mustFail(7, []string{"enablement_selectors: ", text}, `{"enablement_selectors": `+selectors+`}`)
		if a.outcomes != 0 {
			t.Errorf("%s: the agent was asked", selectors)
		}
	}
	n := newNode(t)
	n.startAgent(enrolling())
	if r := n.mustAdd(`{"enablement_selectors": null}`); r.Reason != "ambient" {
		t.Errorf("without selectors: %+v", r)
	}
}

// TestAmbientLife takes a pod of the mesh through the other commands.
func TestAmbientLife(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod = object(notInjected)
	n.startAgent(enrolling())
	cni, runtime := n.cni(), n.runtime("shop", "web-0")
	list := n.list(`{"cniVersion": "1.0.0", "ips": [{"address": "fd00::6/64"}]}`)
	if _, err := cni.AddNetworkList(t.Context(), list, runtime); err != nil {
		t.Fatal(err)
	}
	if err := cni.CheckNetworkList(t.Context(), list, runtime); err != nil {
		t.Error(err)
	}
	if err := os.Remove(n.socket()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := cni.DelNetworkList(t.Context(), list, runtime); err != nil {
			t.Error(err)
		}
	}
}
