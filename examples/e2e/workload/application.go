// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// viaHeader receives each proxy's direction and name.
const viaHeader = "X-Mesh-Via"

type answer struct {
	// Application is the name of the application.
	Application string `json:"application"`
	// Address is the server's address and Remote the client's, as the application sees them.
	Address string `json:"address"`
	Remote  string `json:"remote"`
	// Via lists the proxies on the way, in order.
	Via []string `json:"via"`
	// Asked is the answer of the URL that the request sent the application to.
	Asked json.RawMessage `json:"asked,omitempty"`
}

// application answers requests, and records the probes among them, and who connects.
type application struct {
	name string

	mu     sync.Mutex
	probes []answer
	peers  map[peer]bool
}

// peer is the address at which the application has accepted connections, and a client's.
type peer struct {
	Address string `json:"address"`
	Remote  string `json:"remote"` // without the port
}

// healthCheck is what a kubelet asks by gRPC (the service grpc.health.v1.Health).
const healthCheck = "/grpc.health.v1.Health/Check"

// serve answers on ports of all addresses until the context ends.
func serve(ctx context.Context, name string, ports []string) error {
	a := &application{name: name, peers: map[peer]bool{}}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // for gRPC
	failures := make(chan error, len(ports))
	for _, port := range ports {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", port))
		if err != nil {
			return err
		}
		server := &http.Server{Handler: a, ReadHeaderTimeout: time.Minute, Protocols: &protocols, ConnState: a.record}
		go func() { failures <- server.Serve(listener) }()
	}
	select {
	case err := <-failures:
		return err
	case <-ctx.Done():
		return nil
	}
}

// record keeps who has opened a connection.
func (a *application) record(connection net.Conn, state http.ConnState) {
	if state != http.StateNew {
		return
	}
	remote, _, err := net.SplitHostPort(connection.RemoteAddr().String())
	if err != nil {
		return // every TCP address has a port
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.peers[peer{connection.LocalAddr().String(), remote}] = true
}

// ServeHTTP answers with what it sees of the request; at /probes, with what it has seen of the
// kubelet's probes; at /peers, with who has opened connections. With ?ask=URL it queries that URL
// first and includes the answer, so that one request from outside covers both directions.
func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen := answer{Application: a.name, Remote: r.RemoteAddr, Via: append([]string{}, r.Header.Values(viaHeader)...)}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		seen.Address = local.String()
	}
	if url := r.URL.Query().Get("ask"); url != "" {
		asked, err := ask(r.Context(), newClient(), url)
		if err != nil {
			http.Error(w, fmt.Sprintf("%s asks %s: %v", a.name, url, err), http.StatusBadGateway)
			return
		}
		seen.Asked = asked
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if strings.HasPrefix(r.UserAgent(), "kube-probe/") && len(a.probes) < 100 {
		a.probes = append(a.probes, seen)
	}
	switch r.URL.Path {
	case "/probes":
		_ = json.NewEncoder(w).Encode(a.probes)
	case "/peers":
		_ = json.NewEncoder(w).Encode(slices.Collect(maps.Keys(a.peers)))
	case healthCheck:
		answerHealthCheck(w)
	default:
		_ = json.NewEncoder(w).Encode(seen)
	}
}

// answerHealthCheck says by gRPC that the application serves.
func answerHealthCheck(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	const status, serving = 1 << 3, 1                      // the tag of field 1, a number, and its value
	_, _ = w.Write([]byte{0, 0, 0, 0, 2, status, serving}) // not compressed, two bytes
	w.Header().Set("Grpc-Status", "0")
}
