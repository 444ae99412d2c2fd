// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
)

// TestStatusAsksTheDaemon: what is on the node is right, and the daemon has more to say.
func TestStatusAsksTheDaemon(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.startReady()
	if out, _ := n.command(exitOK, "status"); !strings.Contains(out, "\nready:   yes\n") || !strings.Contains(out, "\nyes    agent-socket  ") {
		t.Errorf("of a node that is ready:\n%s", out)
	}
	state := health.NewState("pods")
	state.Set("pods", "the API server is away")
	state.Set("metrics", "the port is taken")
	state.Auxiliary("metrics")
	state.Set("config", "")
	state.Contest("config", "another program undoes it")
	n.answer(state.Handler())
	out, _ := n.command(exitNotRight, "status")
	for _, want := range []string{
		"\nready:   no; the parts say why\n", "\nno          pods     the API server is away\n", "\nnot needed  metrics  the port is taken\n",
		"\nyes         config   another program undoes it\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("status lacks %q:\n%s", want, out)
		}
	}
	var report nodeStatus
	out, _ = n.command(exitNotRight, "status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Right || report.Daemon == nil || report.Daemon.Ready ||
		report.Daemon.Parts[0].Reason != "the API server is away" {
		t.Errorf("%v\n%s", err, out)
	}
	state.Set("pods", "")
	n.command(exitOK, "status")
	p.end()
	if out, _ := n.command(exitOK, "status"); !strings.Contains(out, "none at work") {
		t.Errorf("without a daemon at work:\n%s", out)
	}
}

// TestStatusWithoutAnAnswer has a daemon at work, and at its port another program, or none.
func TestStatusWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.startReady()
	n.answer(http.NotFoundHandler())
	out, _ := n.command(exitNotRight, "status")
	if want := "\nready:   unknown: no answer of the daemon at health-address, 127.0.0.1:0: the answer has status 404, and is not a daemon's"; !strings.Contains(out, want) {
		t.Errorf("status lacks %q:\n%s", want, out)
	}
	n.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:0")
	}
	var report nodeStatus
	out, _ = n.command(exitNotRight, "status", "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Right || report.NoAnswer == "" || report.Daemon != nil {
		t.Errorf("%v\n%s", err, out)
	}
	p.end()
	n.command(exitOK, "status")
}

// answer has another server at the health server's address.
func (n *testNode) answer(handler http.Handler) {
	n.t.Helper()
	server := httptest.NewServer(handler)
	n.t.Cleanup(server.Close)
	n.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
}

// TestABadConfigMapKeepsNoCommandFromWorking: the daemon works on with the old value, and so do the
// commands, the emergency exit among them.
func TestABadConfigMapKeepsNoCommandFromWorking(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.configMap(map[string]string{"exclude-namespaces": "a"})
	p := n.startReady()
	n.serveAgent(rightAgent())
	n.configMap(map[string]string{"exclude-namespaces": "Not_Good"})
	p.untilLogged("a new value is refused; the old one stays")
	want := `="Not_Good": "Not_Good" is not a Kubernetes name (lower-case letters, digits and dashes); "a" is used instead, from the running daemon`
	for _, args := range []string{"ambient status", "ambient withdraw shop/job-x"} {
		if _, said := n.command(exitOK, strings.Fields(args)...); !strings.Contains(said, want) {
			t.Errorf("%s:\n%s", args, said)
		}
	}
	if _, said := n.command(exitUsage, "ambient", "preflight"); !strings.Contains(said, "Not_Good") { // what would it judge?
		t.Errorf("ambient preflight:\n%s", said)
	}
	out, said := n.command(exitNotRight, "status")
	if refused := "; refused: Not_Good from file "; !strings.Contains(out, "setting: exclude-namespaces is a, ") || !strings.Contains(out, refused) ||
		!strings.Contains(out, "\nok ") || strings.Contains(out, "\ndiffers") || !strings.Contains(said, want) {
		t.Errorf("status:\n%s%s", out, said)
	}
	n.until("config --running ends with the code for a bad value", n.runDir, func() bool {
		code, said := n.config("--running")
		return code == exitUsage && strings.Contains(said, "Not_Good")
	})
	for _, args := range []string{"status", "ambient status", "ambient withdraw shop/job-x", "config --running"} {
		if _, said := n.command(exitUsage, append(strings.Fields(args), "--fail-policy=ajar")...); !strings.Contains(said, "flag --fail-policy") {
			t.Errorf("%s with a wrong flag:\n%s", args, said)
		}
	}
}
