// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight/look"
)

func TestAmbientStatus(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if _, said := n.command(exitFailure, "ambient", "status"); !strings.Contains(said, "is ambient-enabled set") {
		t.Errorf("without an agent:\n%s", said)
	}
	a := rightAgent()
	n.serveAgent(a)
	out, _ := n.command(exitOK, "ambient", "status")
	for _, want := range []string{
		"proxy:  connected since 2023-11-14T22:13:20Z\n", "has heard of all pods", "POD         ELIGIBLE                    RULES    PROXY   SET  STATUS",
		"shop/web-0  yes, selected (selector 2)  planned  serves  yes  enabled", "shop/job-x  no, not-selected            -        -       -",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("status lacks %q:\n%s", want, out)
		}
	}
	for name, args := range map[string][]string{"by name": {"shop/web-0"}, "by UID": {"7f0b"}} {
		var node event.Node
		out, _ := n.command(exitOK, append([]string{"ambient", "status", "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &node); err != nil || len(node.Pods) != 1 || node.Pods[0].UID != "7f0b" {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	if _, said := n.command(exitNotRight, "ambient", "status", "shop/none"); !strings.Contains(said, "knows no pod shop/none") {
		t.Errorf("an unknown pod:\n%s", said)
	}
	if out, _ := n.command(exitOK, "__complete", "ambient", "status", ""); !strings.Contains(out, "shop/web-0\nshop/job-x\n") {
		t.Errorf("completions:\n%s", out)
	}
}

// TestAmbientStatusNamesForeignRules has other programs' chains in a pod, and one that could not be
// looked at.
func TestAmbientStatusNamesForeignRules(t *testing.T) {
	t.Parallel()
	n, a := newNode(t), rightAgent()
	a.node.Pods[0].Foreign = []event.ForeignChain{{
		Table: "inet vpn", Name: "first", Hook: "prerouting", Priority: -300, Rules: []string{"drop", "set mark 0x1"}, Marks: []string{"set mark 0x1"},
	}}
	a.node.Pods[1].ForeignError = "the kernel refuses"
	n.serveAgent(a)
	out, _ := n.command(exitOK, "ambient", "status", "shop/web-0")
	want := "shop/web-0: these rules of other programs come before the agent's:\n  inet vpn/first (hook prerouting, priority -300)\n" +
		"    drop\n    set mark 0x1   <- sets bits of the mesh's marks\n"
	if !strings.Contains(out, want) {
		t.Errorf("status lacks %q:\n%s", want, out)
	}
	if out, _ := n.command(exitOK, "ambient", "status", "shop/job-x"); !strings.Contains(out, "\nshop/job-x: the kernel refuses\n") {
		t.Errorf("status does not say why there are no chains:\n%s", out)
	}
	var node event.Node
	out, _ = n.command(exitOK, "ambient", "status", "shop/web-0", "-o", "json")
	if err := json.Unmarshal([]byte(out), &node); err != nil || len(node.Pods) != 1 || len(node.Pods[0].Foreign) != 1 ||
		node.Pods[0].Foreign[0].Priority != -300 || len(node.Pods[0].Foreign[0].Rules) != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestAmbientStatusIsNotRight has each reason for exit code 3.
func TestAmbientStatusIsNotRight(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(*event.Node)
		want  string
	}{
		"a refusal":    {func(n *event.Node) { n.Pods = append(n.Pods, refusedPod()) }, `shop/web-1: pod 8a1c: the proxy refuses the pod: see its log (it says "no")`},
		"a step":       {func(n *event.Node) { n.Pods[0].Step = "await-proxy" }, "await-proxy"},
		"not enrolled": {func(n *event.Node) { n.Pods[0] = event.PodState{UID: "d", Eligible: true, Reason: "selected"} }, "yes, selected"},
		"no pod yet":   {func(n *event.Node) { n.Complete, n.Pods = false, nil }, "has not heard of all pods"},
		"the host":     {func(n *event.Node) { n.Host = "the kernel has no vxlan" }, "host:   the kernel has no vxlan"},
		"a lost proxy": {func(n *event.Node) {
			n.Proxy.Connection, n.Proxy.Error, n.Pods[0].Status = event.ProxyLost, "closed", "pending"
		}, "proxy:  lost since 2023-11-14T22:13:20Z; the last connection that ended: closed"},
		"never a proxy": {func(n *event.Node) {
			n.Proxy = event.ProxyState{Connection: event.ProxyNeverConnected}
			n.Pods[0].Error = "x"
		}, "has never connected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, a := newNode(t), rightAgent()
			test.spoil(&a.node)
			n.serveAgent(a)
			if out, _ := n.command(exitNotRight, "ambient", "status"); !strings.Contains(out, test.want) {
				t.Errorf("status lacks %q:\n%s", test.want, out)
			}
		})
	}
}

func TestAmbientWithdraw(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if _, said := n.command(exitFailure, "ambient", "withdraw", "--all"); !strings.Contains(said, "no such file") {
		t.Errorf("without an agent:\n%s", said)
	}
	a := rightAgent()
	a.node.Pods, a.stays = append(a.node.Pods, refusedPod()), "web-1"
	n.serveAgent(a)
	if out, _ := n.command(exitOK, "ambient", "withdraw", "shop/web-0"); out != "out   shop/web-0\ndone: 1 pods are out of the mesh\n" {
		t.Errorf("one pod:\n%s", out)
	}
	out, said := n.command(exitNotRight, "ambient", "withdraw", "--all", "--timeout=5s")
	if !strings.Contains(out, "out   shop/web-0\n") || !strings.Contains(out, `left  shop/web-1: step "tell"`) || !strings.Contains(said, "still in the mesh") {
		t.Errorf("all pods, one stays:\n%s%s", out, said)
	}
	var report withdrawalReport
	out, _ = n.command(exitNotRight, "ambient", "withdraw", "--all", "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Out) != 2 || len(report.Left) != 1 || report.Error == "" {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _ := n.command(exitOK, "ambient", "withdraw", "--undo"); !strings.Contains(out, "enrols the pods again") {
		t.Errorf("undo:\n%s", out)
	}
}

func TestAmbientUsage(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for args, want := range map[string]string{
		"ambient": "needs a command", "ambient statu": "neither a command", "ambient withdraw": "name one pod, or --all, or --undo",
		"ambient withdraw --all shop/web-0": "name one pod, or --all", "ambient withdraw --all --timeout=0s": "above zero",
		"ambient status shop/": "is no pod", "ambient status a/b/c": "is no pod", "ambient status a b": "2 arguments", "ambient status -o xml": "table or json",
	} {
		if _, said := n.command(exitUsage, strings.Fields(args)...); !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", args, said, want)
		}
	}
}

// preflight runs the command on a node with a view.
func (n *testNode) preflight(code int, v preflight.View, args ...string) string {
	n.t.Helper()
	n.look = func(context.Context, look.Options) preflight.View { return v }
	out, said := n.command(code, append([]string{"ambient", "preflight"}, args...)...)
	return out + said
}

func TestAmbientPreflight(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var asked look.Options
	n.look = func(_ context.Context, o look.Options) preflight.View {
		asked = o
		return preflight.View{}
	}
	n.command(exitOK, "ambient", "preflight", "--ambient-dns-capture", "--native-nftables", "--mounted-proc-dir=/proc")
	if asked.NetDir != n.netDir || asked.Proc != "/proc" || !asked.Settings.DNS || asked.Settings.Dataplane != "nftables" {
		t.Errorf("it looks with %+v", asked)
	}
	if out := n.preflight(exitOK, preflight.View{}); !strings.Contains(out, "nothing was found") {
		t.Errorf("a node that is fine:\n%s", out)
	}
	calico := preflight.View{Links: []preflight.Link{{Name: "bpfin.cali"}}}
	if out := n.preflight(exitNotRight, calico); !strings.Contains(out, "calico-ebpf: the link bpfin.cali") || !strings.Contains(out, "\n  do: use Calico's") {
		t.Errorf("a node with Calico's eBPF dataplane:\n%s", out)
	}
	var report preflightReport
	if err := json.Unmarshal([]byte(n.preflight(exitNotRight, calico, "-o", "json")), &report); err != nil || len(report.Findings) != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	if out := n.preflight(exitOK, preflight.View{}, "-o", "json"); !strings.Contains(out, `"findings": []`) {
		t.Errorf("a node that is fine, as JSON:\n%s", out)
	}
	n.write(n.cacheDir, "policies.json",
		`{"kind":"List","items":[{"metadata":{"namespace":"shop","name":"allow"},"spec":{"ingress":[{"ports":[{"port":8080}]}]}}]}`, 0o600)
	policies := "--network-policies=" + filepath.Join(n.cacheDir, "policies.json")
	if out := n.preflight(exitNotRight, preflight.View{}, policies); !strings.Contains(out, "policy-tunnel: NetworkPolicy shop/allow") {
		t.Errorf("a policy:\n%s", out)
	}
	n.write(n.cacheDir, "policies.json", "{}", 0o600)
	for _, bad := range []string{policies, policies + ".missing"} {
		if out := n.preflight(exitUsage, preflight.View{}, bad); !strings.Contains(out, "policies.json") {
			t.Errorf("%s:\n%s", bad, out)
		}
	}
}

// TestAmbientPreflightLooks runs the command on the test's own machine, with a CNI configuration of
// Cilium that has taken another one away.
func TestAmbientPreflightLooks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "05-cilium.conflist", `{"name":"cilium","plugins":[{"type":"cilium-cni"}]}`, 0o644)
	n.write(n.netDir, "10-calico.conflist.cilium_bak", calico, 0o644)
	n.look = look.Node
	if out, _ := n.command(exitNotRight, "ambient", "preflight", "--mounted-proc-dir=/proc"); !strings.Contains(out, "cilium-exclusive: ") || strings.Contains(out, "unknown: ") {
		t.Errorf("the command finds\n%s", out)
	}
}
