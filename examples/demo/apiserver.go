// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"slices"
)

// podHandler stands in for a Kubernetes API server: it serves the pods and the daemon's own objects
// to clients with the token, and answers everything else with a Status object.
func podHandler(token string, pods ...podManifest) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.PathValue("namespace"), r.PathValue("name")
		i := slices.IndexFunc(pods, func(pod podManifest) bool { return pod.Namespace == namespace && pod.Name == name })
		if i < 0 {
			writeStatus(w, http.StatusNotFound, "NotFound", fmt.Sprintf("pods %q not found", name))
			return
		}
		writeJSON(w, http.StatusOK, pods[i].json)
	})
	for path, object := range ownObjects() {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, []byte(object)) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeStatus(w, http.StatusForbidden, "Forbidden", "this service account may get pods and its own DaemonSet and namespace, and nothing else")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			writeStatus(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// The names of the daemon's namespace and DaemonSet.
const (
	daemonNamespace = "istio-system"
	daemonSet       = "istio-cni-node"
)

// ownObjects returns, by path, the objects that a daemon requests when it is stopped: its namespace
// and its DaemonSet. Neither is being deleted, so the daemon expects a successor and leaves
// everything in place at once.
func ownObjects() map[string]string {
	return map[string]string{
		"/api/v1/namespaces/" + daemonNamespace: fmt.Sprintf(
			`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q}}`, daemonNamespace),
		"/apis/apps/v1/namespaces/" + daemonNamespace + "/daemonsets/" + daemonSet: fmt.Sprintf(
			`{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": %q, "namespace": %q, "uid": %q}, "spec": {"template": {"spec": {}}}}`,
			daemonSet, daemonNamespace, ownUID),
	}
}

// writeStatus answers with a Status object (Kubernetes API conventions, "Response Status Kind").
func writeStatus(w http.ResponseWriter, code int, reason, message string) {
	writeJSON(w, code, fmt.Appendf(nil,
		`{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": %q, "message": %q, "code": %d}`,
		reason, message, code))
}

// writeJSON writes an answer. A write error means that the client has gone.
func writeJSON(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
