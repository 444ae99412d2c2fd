// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// TestNodeStartsWithoutCredentials has a node after a reboot: the API server refuses the token, or
// there is no kubeconfig yet, and no agent answers. The agent, the proxy and pods of excluded
// namespaces start (docs/ambient-complaints.md, E5).
func TestNodeStartsWithoutCredentials(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*node){
		"expired token": func(n *node) {
			n.pod = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
			n.namespace = n.pod
		},
		"no kubeconfig": func(n *node) {
			if err := os.Remove(filepath.Join(n.runDir, "istio-cni-kubeconfig")); err != nil {
				n.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			prepare(n)
			for _, pod := range [][2]string{
				{"istio-system", "istio-cni-node-x7k2p"}, {"istio-system", "ztunnel-x7k2p"}, {"kube-system", "coredns-0"},
			} {
				if _, err := n.cni().AddNetworkList(t.Context(), n.list(previous), n.runtime(pod[0], pod[1])); err != nil {
					t.Errorf("%v: %v", pod, err)
				}
			}
			if n.requests() != nil {
				t.Errorf("the API server was asked for %v", n.requests())
			}
		})
	}
}

// TestPodOfTheMeshStartsWithAnExpiredToken has the agent know the pod: no credential is needed
// (docs/ambient-complaints.md, E5).
func TestPodOfTheMeshStartsWithAnExpiredToken(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.pod = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	n.namespace = n.pod
	a := n.startAgent(enrolling())
	if r := n.mustAdd(); r.Reason != "ambient" {
		t.Errorf("the plugin reports %+v", r)
	}
	if pods, _ := a.seen(); len(pods) != 1 || n.requests() != nil {
		t.Errorf("the agent was asked about %v, and the API server for %v", pods, n.requests())
	}
}
