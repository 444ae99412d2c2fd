// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

// withAPIServer gives the node an API server that says this of the daemon's DaemonSet.
func (n *testNode) withAPIServer(status int, body string) {
	n.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/apps/v1/namespaces/istio-system/daemonsets/istio-cni-node" || r.Header.Get("Authorization") != "Bearer token-1" {
			n.t.Errorf("the API server is asked for %s", r.URL)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
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
}

func TestDeparture(t *testing.T) {
	t.Parallel()
	const daemonSet = `{"kind":"DaemonSet","metadata":{"name":"istio-cni-node"%s}}`
	missing := `{"kind":"Status","reason":"NotFound","details":{"name":"istio-cni-node"}}`
	for name, test := range map[string]struct {
		prepare    func(n *testNode)
		uninstalls bool
		says       string
	}{
		"upgraded":       {func(n *testNode) { n.withAPIServer(200, fmt.Sprintf(daemonSet, "")) }, false, "stays in place"},
		"being deleted":  {func(n *testNode) { n.withAPIServer(200, fmt.Sprintf(daemonSet, `,"deletionTimestamp":"x"`)) }, true, "was deleted"},
		"deleted":        {func(n *testNode) { n.withAPIServer(404, missing) }, true, "was deleted"},
		"not to be told": {func(n *testNode) { n.withAPIServer(404, missing); n.env["UNINSTALL_ON_DELETION"] = "false" }, false, "stays in place"},
		"name not known": {func(n *testNode) { n.withAPIServer(404, missing); delete(n.env, "POD_NAME") }, false, "name isn't known"},
		"no server": {func(n *testNode) {
			n.withAPIServer(404, missing)
			n.env["KUBERNETES_SERVICE_HOST"] = ""
		}, false, "can't tell whether the DaemonSet was deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			test.prepare(n)
			p := n.start()
			if name == "no server" {
				p.waitAnswer(http.StatusServiceUnavailable, "KUBERNETES_SERVICE_HOST")
			} else {
				p.waitReady()
			}
			p.end()
			if !strings.Contains(p.log.String(), test.says) {
				t.Errorf("the log doesn't say %q", test.says)
			}
			if test.uninstalls {
				n.wantPresent("istio-cni.uninstalled")
			}
			if got := n.hasEntry("10-calico.conflist"); got == test.uninstalls && name != "no server" {
				t.Errorf("the entry is there: %v", got)
			}
		})
	}
}

// TestDeletionIsLeftToAnotherRevision has the DaemonSet of one of two revisions of the mesh deleted.
func TestDeletionIsLeftToAnotherRevision(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.withAPIServer(404, `{"kind":"Status","reason":"NotFound","details":{"name":"istio-cni-node"}}`)
	old := n.startReady()
	n.env["POD_NAMESPACE"], n.env["POD_NAME"], n.env["UNINSTALL_ON_DELETION"] = "canary", "istio-cni-node-canary-bcdfg", "false"
	canary := n.startReady()
	old.waitAnswer(http.StatusServiceUnavailable, "a newer daemon keeps this node")
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
	if output := n.mustUninstall("--on-exit"); !strings.Contains(output, "when it is told to stop") || !n.hasEntry("10-calico.conflist") {
		t.Errorf("output:\n%s", output)
	}
	second := n.startReady() // forgets it, be it a newer version or the same one after a crash
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
	n.mustUninstall("--on-exit") // nobody is there: at once
	n.wantPresent("istio-cni.uninstalled")
}
