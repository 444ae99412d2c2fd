// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	networkingclient "k8s.io/client-go/kubernetes/typed/networking/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// policed is a pod with a NetworkPolicy. It is enforced where Cilium does so: at the pod's link,
// after all rules of the node.
type policed struct {
	*ambientScenario
	server, client *corev1.Pod
}

// TestAmbientNetworkPolicy has a NetworkPolicy from before the mesh, which allows the application's
// port: requests of the mesh and probes fail. They pass once it allows the tunnel's port and the
// addresses of probes. Each time preflight names what it lacks.
func TestAmbientNetworkPolicy(t *testing.T) {
	suite.Long(t)
	a := &ambientScenario{suite.BeginWith(t, ambientValues()), t}
	a.startProxies(strict)
	a.label(true)
	p := policed{ambientScenario: a, client: a.Pod(scenario.Workload{Name: "client", Node: a.PointToPoint.Name})}
	p.server = a.Pod(scenario.Workload{Name: "server", Node: a.Bridge.Name, Change: func(template *corev1.PodTemplateSpec) {
		template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler: probeHandler("http", 8080), PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3,
		}
	}})
	a.awaitEnrolled(true, p.server, p.client)
	a.tunnel(p.server, p.client)
	a.Expect(p.client, p.server, 8080)
	p.beginPolicy()

	p.allow(8080)
	p.expectFindings("policy-tunnel", "policy-probes")
	p.awaitReady(false)
	if _, err := a.Ask(p.client, scenario.URLs(p.server, 8080)[0]); err == nil {
		t.Error("a request passes although the port of tunnels is not allowed")
	}

	tunnel := ambient.IstioNumbers().TunnelPort
	p.allow(8080, int(tunnel))
	p.expectFindings("policy-probes")
	a.Expect(p.client, p.server, 8080)
	p.awaitReady(false)

	p.allowProbes()
	p.expectFindings()
	p.awaitReady(true)
	a.Expect(p.client, p.server, 8080)
}

// beginPolicy makes the node look like one with Cilium, makes the NetworkPolicy, and enforces it.
func (p policed) beginPolicy() {
	p.t.Helper()
	p.Do("a link as Cilium's", func(ctx context.Context) error {
		_, err := p.Bridge.Run(ctx, "ip", "link", "add", "cilium_host", "type", "veth", "peer", "name", "cilium_net")
		return err
	})
	p.Cleanup("remove the link", func(ctx context.Context) error {
		_, err := p.Bridge.Run(ctx, "ip", "link", "delete", "cilium_host")
		return err
	})
	var to []string
	for _, address := range p.server.Status.PodIPs {
		to = append(to, match("daddr", address.IP)+" tcp flags & (syn | ack) == syn jump allowed")
	}
	p.nft(`add table bridge policed
add chain bridge policed output { type filter hook output priority 0; }
add chain bridge policed allowed
add rule bridge policed output ` + strings.Join(to, "\nadd rule bridge policed output "))
	p.Cleanup("end the policy", func(ctx context.Context) error {
		_, err := p.Bridge.Run(ctx, "nft", "delete", "table", "bridge", "policed")
		return err
	})
	p.Do("make the NetworkPolicy", func(ctx context.Context) error {
		_, err := p.policies().Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "server"}}, metav1.CreateOptions{})
		return err
	})
}

// match returns a match of an address, by its family.
func match(field, address string) string {
	if strings.Contains(address, ":") {
		return "ip6 " + field + " " + address
	}
	return "ip " + field + " " + address
}

func (p policed) nft(script string) {
	p.t.Helper()
	p.Do("change the filter", func(ctx context.Context) error {
		_, err := p.Bridge.Run(ctx, "nft", script)
		return err
	})
}

// allow makes the policy allow the client at ports, and nothing else.
func (p policed) allow(ports ...int) {
	p.t.Helper()
	rule := networkingv1.NetworkPolicyIngressRule{
		From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: p.client.Labels}}},
	}
	var words []string
	for _, port := range ports {
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt(port))})
		words = append(words, fmt.Sprint(port))
	}
	script := "flush chain bridge policed allowed\n"
	for _, address := range p.client.Status.PodIPs {
		script += "add rule bridge policed allowed " + match("saddr", address.IP) + " tcp dport { " + strings.Join(words, ", ") + " } accept\n"
	}
	p.nft(script + "add rule bridge policed allowed drop")
	p.setPolicy(rule)
}

// allowProbes makes the policy allow the addresses of probes, too.
func (p policed) allowProbes() {
	p.t.Helper()
	rule, script := networkingv1.NetworkPolicyIngressRule{}, ""
	for _, address := range ambient.IstioNumbers().Probes {
		script += "insert rule bridge policed allowed " + match("saddr", address.String()) + " accept\n"
		prefix := fmt.Sprintf("%s/%d", address, address.BitLen())
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: prefix}})
	}
	p.nft(script)
	now, err := p.policies().Get(p.t.Context(), "server", metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.setPolicy(append(now.Spec.Ingress, rule)...)
}

// setPolicy sets the rules of the NetworkPolicy.
func (p policed) setPolicy(rules ...networkingv1.NetworkPolicyIngressRule) {
	p.t.Helper()
	p.Do("change the NetworkPolicy", func(ctx context.Context) error {
		now, err := p.policies().Get(ctx, "server", metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Spec = networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: p.server.Labels}, Ingress: rules}
		_, err = p.policies().Update(ctx, now, metav1.UpdateOptions{})
		return err
	})
}

func (p policed) policies() networkingclient.NetworkPolicyInterface {
	return p.Cluster.Client.NetworkingV1().NetworkPolicies(p.Namespace)
}

// expectFindings gives the cluster's policies to preflight, and checks what it finds of them.
func (p policed) expectFindings(want ...string) {
	p.t.Helper()
	const file = "istio-cni/policies.json" // below /run on the node, and in the daemon's container
	p.Do("write the policies to a file", func(ctx context.Context) error {
		text, err := p.Cluster.Client.NetworkingV1().RESTClient().Get().AbsPath("/apis/networking.k8s.io/v1/networkpolicies").DoRaw(ctx)
		if err != nil {
			return err
		}
		return os.WriteFile(p.Bridge.Path("/run/"+file), text, 0o600)
	})
	p.Cleanup("remove the file", func(context.Context) error { return os.RemoveAll(p.Bridge.Path("/run/" + file)) })
	said, err := p.Exec(p.Daemon(p.Bridge), "install-cni", "install-cni", "ambient", "preflight", "-o", "json", "--network-policies=/var/run/"+file)
	var report struct{ Findings []struct{ Code, Seen string } }
	if parseErr := json.Unmarshal([]byte(said), &report); parseErr != nil {
		p.t.Fatalf("preflight: %v, %q", err, said)
	}
	var found []string
	for _, finding := range report.Findings {
		if strings.HasPrefix(finding.Code, "policy-") && strings.Contains(finding.Seen, p.Namespace+"/server") {
			found = append(found, finding.Code)
		}
	}
	slices.Sort(found)
	slices.Sort(want)
	if !slices.Equal(found, want) {
		p.t.Errorf("preflight finds %q of the policy, want %q:\n%s", found, want, said)
	}
}

// awaitReady waits until the server is ready or not.
func (p policed) awaitReady(ready bool) {
	p.t.Helper()
	p.Await(fmt.Sprintf("the server to be ready: %t", ready), func(ctx context.Context) (bool, error) {
		now, err := p.get(ctx, p.server)
		return err == nil && scenario.Ready(now) == ready, err
	})
}
