// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// apiServer stands in for a Kubernetes API server: over TLS, it hands out one pod, and the daemon's own objects, to whoever has the token.
type apiServer struct {
	// address is where it listens.
	address netip.AddrPort
	// ca is the certificate, in PEM, that its own is signed with.
	ca     []byte
	server *http.Server
	done   chan error
}

// startAPIServer serves the pod on a free port of 127.0.0.1 and logs each request.
func startAPIServer(ctx context.Context, pod podManifest, token string, log *slog.Logger) (*apiServer, error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	ca, certificate, err := issue(loopback, time.Now())
	if err != nil {
		return nil, fmt.Errorf("make the API server's certificate: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(loopback, 0).String())
	if err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	address, err := netip.ParseAddrPort(listener.Addr().String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the API server: %w", err), listener.Close())
	}
	s := &apiServer{
		address: address,
		ca:      ca,
		server: &http.Server{
			Handler:           podHandler(pod, token, log),
			TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
			ReadHeaderTimeout: 5 * time.Second,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
		done: make(chan error, 1),
	}
	go func() { s.done <- s.server.ServeTLS(listener, "", "") }()
	return s, nil
}

// close ends the server and the connections that are still open.
func (s *apiServer) close() error {
	err := s.server.Close()
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// podHandler answers as the API server does: the pod, or a Status object.
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

// The names of the daemon's own namespace and DaemonSet.
const (
	daemonNamespace = "istio-system"
	daemonSet       = "istio-cni-node"
)

// ownObjects are what a daemon asks for when it is told to stop, by path: its namespace and its DaemonSet, which are there and not being
// deleted. So it knows that another daemon will follow, and leaves everything in place at once.
func ownObjects() map[string]string {
	return map[string]string{
		"/api/v1/namespaces/" + daemonNamespace: fmt.Sprintf(
			`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q}}`, daemonNamespace),
		"/apis/apps/v1/namespaces/" + daemonNamespace + "/daemonsets/" + daemonSet: fmt.Sprintf(
			`{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": %q, "namespace": %q, "uid": %q}, "spec": {"template": {"spec": {}}}}`,
			daemonSet, daemonNamespace, ownUID),
	}
}

// statusRecorder remembers the status for the log.
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
	if err != nil { // texts and numbers only: it cannot fail
		panic(err)
	}
	writeJSON(w, code, body)
}

// writeJSON answers; when the client has gone there is nobody left to tell.
func writeJSON(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// issue makes a certificate authority, as PEM, and a certificate of it for one address.
func issue(address netip.Addr, now time.Time) (ca []byte, certificate tls.Certificate, err error) {
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "demo-ca"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{address.AsSlice()},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, authority, key.Public(), authorityKey)
	if err != nil {
		return nil, tls.Certificate{}, err
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER})
	return ca, tls.Certificate{Certificate: [][]byte{serverDER}, PrivateKey: key}, nil
}
