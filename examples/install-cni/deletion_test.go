// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// apiServer gives prepared answers about the daemon's DaemonSet.
type apiServer struct {
	mu     sync.Mutex
	status int
	body   string
	closes bool // the namespace is being deleted
}

const namespacePath = "/api/v1/namespaces/istio-system"

const (
	daemonSet        = `{"kind":"DaemonSet","metadata":{"name":"istio-cni-node","uid":"1"}}`
	daemonSetLeaving = `{"kind":"DaemonSet","metadata":{"name":"istio-cni-node","uid":"1","deletionTimestamp":"x"}}`
	noDaemonSet      = `{"kind":"Status","reason":"NotFound","details":{"name":"istio-cni-node"}}`
)

// serveNamespace answers for the namespace as if only requests for the DaemonSet were ever refused.
func (s *apiServer) serveNamespace(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	deletion := ""
	if s.closes {
		deletion = `,"deletionTimestamp":"x"`
	}
	fmt.Fprintf(w, `{"kind":"Namespace","metadata":{"name":"istio-system"%s}}`, deletion)
}

// close marks the namespace as being deleted.
func (s *apiServer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closes = true
}

func (s *apiServer) say(status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body = status, body
}

// withAPIServer gives the node an API server that knows only the daemon's DaemonSet.
func (n *testNode) withAPIServer() *apiServer { return n.withAPIServerBeside(nil) }

// withAPIServerBeside is withAPIServer with another handler for all other requests. The handler is
// set before the server starts, since the goroutines that serve read it without a lock.
func (n *testNode) withAPIServerBeside(others http.Handler) *apiServer {
	n.t.Helper()
	s := &apiServer{status: http.StatusOK, body: daemonSet}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == namespacePath {
			s.serveNamespace(w)
			return
		}
		if others != nil && !strings.HasPrefix(r.URL.Path, "/apis/apps/") {
			others.ServeHTTP(w, r)
			return
		}
		if r.URL.Path != "/apis/apps/v1/namespaces/istio-system/daemonsets/istio-cni-node" || !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer token-") {
			n.t.Errorf("the API server is asked for %s", r.URL)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		w.WriteHeader(s.status)
		fmt.Fprint(w, s.body)
	}))
	n.t.Cleanup(server.Close)
	location, err := url.Parse(server.URL)
	if err != nil {
		n.t.Fatal(err)
	}
	n.write(n.runDirParent(), "server.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})), 0o600)
	n.env["KUBERNETES_SERVICE_HOST"], n.env["KUBERNETES_SERVICE_PORT"] = location.Hostname(), location.Port()
	n.env["KUBE_CA_FILE"] = filepath.Join(n.runDirParent(), "server.crt")
	delete(n.env, "UNINSTALL_ON_DELETION")
	return s
}

// startAcquainted starts a daemon, and waits until it is ready and has asked for its DaemonSet.
func (n *testNode) startAcquainted() *process {
	n.t.Helper()
	p := n.startReady()
	p.untilLogged(`msg="a part's state has changed" part=daemonset`)
	return p
}

func TestDeparture(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		env        map[string]string
		closes     bool // the namespace, at the end
		status     int  // the answer about the DaemonSet then
		body       string
		uninstalls bool
		says       string
	}{
		"upgraded":          {nil, false, 200, daemonSet, false, "stays in place"},
		"being deleted":     {nil, false, 200, daemonSetLeaving, true, "is leaving this node: it is being deleted"},
		"deleted":           {nil, false, 404, noDaemonSet, true, "is leaving this node: the API server no longer has it (404)"},
		"namespace deleted": {nil, true, 200, daemonSet, true, "is leaving this node: its namespace istio-system is being deleted"},
		"account anew":      {nil, false, 401, "", false, "refuses the token (401); no ConfigMap is watched"},
		"not verified":      {map[string]string{"SKIP_TLS_VERIFY": "true"}, false, 404, noDaemonSet, false, "isn't verified"},
		"not to be told":    {map[string]string{"UNINSTALL_ON_DELETION": "false"}, false, 404, noDaemonSet, false, "stays in place"},
		"name not known":    {map[string]string{"POD_NAME": ""}, false, 404, noDaemonSet, false, "name is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			server := n.withAPIServer()
			maps.Copy(n.env, test.env)
			start := n.startAcquainted
			if test.env != nil {
				start = func() *process { return n.startReady() }
			}
			daemon := start()
			server.say(test.status, test.body)
			if test.closes {
				server.close()
			}
			daemon.end()
			if !strings.Contains(daemon.log.String(), test.says) {
				t.Errorf("the log doesn't say %q", test.says)
			}
			if test.uninstalls {
				n.wantPresent("istio-cni.uninstalled")
			}
			if got := n.hasEntry("10-calico.conflist"); got == test.uninstalls {
				t.Errorf("the entry is there: %v", got)
			}
		})
	}
}

// TestDeletionIsLeftToAnotherRevision deletes the DaemonSet of one of two revisions of the mesh.
func TestDeletionIsLeftToAnotherRevision(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	server := n.withAPIServer()
	old := n.startAcquainted()
	server.say(404, noDaemonSet)
	n.env["POD_NAMESPACE"], n.env["POD_NAME"], n.env["UNINSTALL_ON_DELETION"] = "canary", "istio-cni-node-canary-bcdfg", "false"
	canary := n.startReady()
	old.waitAnswer(http.StatusServiceUnavailable, "a newer daemon is in charge of this node")
	old.end()
	canary.waitReady()
	n.wantPresent("istio-cni", "istio-cni.claim", "istio-cni-kubeconfig")
	if !n.hasEntry("10-calico.conflist") || !strings.Contains(old.log.String(), "another daemon has taken over") {
		t.Error("the entry is gone, or nobody says why it isn't")
	}
	if claim := n.read(n.binDir, "istio-cni.claim"); !strings.Contains(claim, `"canary/istio-cni-node-canary"`) {
		t.Errorf("the claim is\n%s", claim)
	}
}

func TestUninstallOnRequest(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	first := n.startReady()
	if output := n.mustUninstall("--on-exit"); !strings.Contains(output, "when it is stopped") || !n.hasEntry("10-calico.conflist") {
		t.Errorf("output:\n%s", output)
	}
	second := n.startReady() // forgets it, whether a newer version or the same one after a crash
	first.end()
	second.end()
	n.wantPresent("istio-cni", "istio-cni.claim", "istio-cni-kubeconfig")

	third := n.startReady()
	n.mustUninstall("--on-exit")
	third.end()
	n.wantPresent("istio-cni.uninstalled")
	if got := n.read(n.netDir, "10-calico.conflist"); got != calico || len(n.files(n.runDir)) > 0 {
		t.Errorf("there is left %v and\n%s", n.files(n.runDir), got)
	}

	n.startReady().end()
	n.mustUninstall("--on-exit") // no daemon runs: uninstalls at once
	n.wantPresent("istio-cni.uninstalled")
}
