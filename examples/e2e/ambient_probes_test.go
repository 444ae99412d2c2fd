// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// strict has the proxies refuse connections to their pods that come without a tunnel.
const strict = "-strict"

// TestAmbientProbes has probes of every kind, and proxies that refuse what comes without a tunnel:
// the probes pass because the node's rules give them the address by which pods know them. A pod
// that joins the mesh while it runs stays ready.
func TestAmbientProbes(t *testing.T) {
	suite.Long(t)
	a := &ambientScenario{suite.BeginWith(t, ambientValues()), t}
	a.startProxies(strict)
	outside := a.Pod(scenario.Workload{Name: "outside", Change: func(template *corev1.PodTemplateSpec) {
		template.Labels[dataplaneMode] = "none"
	}})
	running := a.Pod(probed("running", a.Bridge))
	a.Expect(outside, running, 8080)
	a.label(true)
	a.awaitEnrolled(true, running)
	pods := map[*corev1.Pod][]int{running: {1, 2}} // its startup probes have ended before
	for _, node := range []*cluster.Node{a.Bridge, a.PointToPoint} {
		pods[a.Pod(probed("on-"+node.Name, node))] = []int{0, 1, 2}
	}
	for pod, probes := range pods {
		a.awaitEnrolled(true, pod)
		a.expectProbed(pod, probes...)
		a.expectRefused(outside, pod)
	}
}

// probeHandler returns a handler of probes of a kind; unless it is named, by HTTP.
func probeHandler(kind string, port int) corev1.ProbeHandler {
	switch kind {
	case "tcp":
		return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}}
	case "grpc":
		return corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(port)}}
	case "exec":
		return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/workload", "get", fmt.Sprintf("http://127.0.0.1:%d/", port)}}}
	}
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt(port)}}
}

// probedContainers are those of a probed pod, in order. The first one is probed by HTTP.
func probedContainers() []string { return []string{"application", "tcp", "grpc", "exec"} }

// probedPorts are the ports of a container for the probes of startup, readiness and liveness.
func probedPorts(container int) []int {
	first := 8080 + 10*container
	return []int{first, first + 1, first + 2}
}

// probed returns a pod with a container for each kind of handler, which has all three probes.
func probed(name string, node *cluster.Node) scenario.Workload {
	return scenario.Workload{Name: name, Node: node.Name, Change: func(template *corev1.PodTemplateSpec) {
		application := template.Spec.Containers[0]
		template.Spec.Containers = nil
		for number, kind := range probedContainers() {
			c, ports := *application.DeepCopy(), probedPorts(number)
			c.Name, c.Args = kind, []string{"serve", name}
			for i, to := range []**corev1.Probe{&c.StartupProbe, &c.ReadinessProbe, &c.LivenessProbe} {
				c.Args = append(c.Args, fmt.Sprint(ports[i]))
				*to = &corev1.Probe{ProbeHandler: probeHandler(kind, ports[i]), PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 10}
			}
			template.Spec.Containers = append(template.Spec.Containers, c)
		}
	}}
}

// expectProbed waits until some of a probed pod's probes (0 is that of the startup, 1 of readiness,
// 2 of liveness) have reached each container, from the address of probes, and checks that no
// container was started again meanwhile.
func (a *ambientScenario) expectProbed(pod *corev1.Pod, probes ...int) {
	a.t.Helper()
	to := netip.MustParseAddr(pod.Status.PodIP)
	from := ambient.IstioNumbers().Probes
	from = slices.DeleteFunc(slices.Clone(from), func(ip netip.Addr) bool { return ip.Is4() != to.Is4() })
	for number, kind := range probedContainers() {
		wanted := map[peer]bool{}
		for _, probe := range probes {
			port := fmt.Sprint(probedPorts(number)[probe])
			p := peer{net.JoinHostPort(to.String(), port), from[0].String()}
			if kind == "exec" {
				p = peer{net.JoinHostPort("127.0.0.1", port), "127.0.0.1"}
			}
			wanted[p] = true
		}
		var seen []peer
		a.Await(fmt.Sprintf("probes %v of %s by %s", probes, pod.Name, kind), func(context.Context) (bool, error) {
			seen = a.peers(pod, kind, probedPorts(number)[0])
			missing := len(wanted)
			for _, p := range seen {
				if wanted[p] {
					missing--
				}
			}
			return missing == 0, nil
		})
	}
	now, err := a.get(a.t.Context(), pod)
	if err != nil {
		a.t.Fatal(err)
	}
	for i, status := range now.Status.ContainerStatuses {
		if status.RestartCount != pod.Status.ContainerStatuses[i].RestartCount || !status.Ready {
			a.t.Errorf("container %s of %s: %+v", status.Name, pod.Name, status)
		}
	}
}

// peer is who has connected to an application, and at which address.
type peer struct{ Address, Remote string }

// peers returns who has connected to a container's application.
func (a *ambientScenario) peers(pod *corev1.Pod, container string, port int) (all []peer) {
	a.t.Helper()
	text, err := a.Exec(pod, container, "/workload", "get", fmt.Sprintf("http://127.0.0.1:%d/peers", port))
	if err == nil {
		err = json.Unmarshal([]byte(text), &all)
	}
	if err != nil {
		a.t.Fatalf("who has connected to %s of %s: %q, %v", container, pod.Name, text, err)
	}
	return all
}

// expectRefused checks that a pod's requests to another pod, whose proxy is strict, are refused.
func (a *ambientScenario) expectRefused(from, to *corev1.Pod) {
	a.t.Helper()
	for _, url := range scenario.URLs(to, 8080) {
		if answer, err := a.Ask(from, url); err == nil {
			a.t.Errorf("%s asks %s without a tunnel, and the answer is %+v", from.Name, url, answer)
		}
	}
}
