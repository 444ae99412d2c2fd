// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"time"
)

// startAPIServer starts a stand-in for a Kubernetes API server on a free port of 127.0.0.1. Over
// TLS, it serves one pod and the daemon's own objects to clients with the token. It logs each
// request.
func startAPIServer(ctx context.Context, pod podManifest, token string, log *slog.Logger) (*httptest.Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{
		Handler:           podHandler(pod, token, log),
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}}
	server.StartTLS()
	return server, nil
}

// podHandler answers as the API server does: with the pod, or with a Status object.
func podHandler(pod podManifest, token string, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		if namespace, name := r.PathValue("namespace"), r.PathValue("name"); namespace != pod.namespace || name != pod.name {
			writeStatus(w, http.StatusNotFound, "NotFound", fmt.Sprintf("pods %q not found", name))
			return
		}
		writeJSON(w, http.StatusOK, pod.json)
	})
	for path, object := range ownObjects() {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, []byte(object)) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeStatus(w, http.StatusForbidden, "Forbidden", "this service account may get pods and its own DaemonSet and namespace, and nothing else")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := &statusRecorder{ResponseWriter: w}
		if given := r.Header.Get("Authorization"); subtle.ConstantTimeCompare([]byte(given), []byte("Bearer "+token)) != 1 {
			writeStatus(recorder, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		} else {
			mux.ServeHTTP(recorder, r)
		}
		log.Info("request", "method", r.Method, "path", r.URL.Path, "status", recorder.status, "agent", r.UserAgent())
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

// statusRecorder keeps the status for the log.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// writeStatus answers with a Status object (Kubernetes API conventions, "Response Status Kind").
func writeStatus(w http.ResponseWriter, code int, reason, message string) {
	body, err := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{},
		"status": "Failure", "reason": reason, "message": message, "code": code,
	})
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	writeJSON(w, code, body)
}

// writeJSON writes an answer. A write error means that the client has gone.
func writeJSON(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
