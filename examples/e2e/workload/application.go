// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
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

// application answers requests, and records the probes among them.
type application struct {
	name string

	mu     sync.Mutex
	probes []answer
}

// serve answers on ports of all addresses until the context ends.
func serve(ctx context.Context, name string, ports []string) error {
	a := &application{name: name}
	failures := make(chan error, len(ports))
	for _, port := range ports {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", port))
		if err != nil {
			return err
		}
		server := &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
		go func() { failures <- server.Serve(listener) }()
	}
	select {
	case err := <-failures:
		return err
	case <-ctx.Done():
		return nil
	}
}

// ServeHTTP answers with what it sees of the request; at /probes, with what it has seen of the
// kubelet's probes. With ?ask=URL it queries that URL first and includes the answer, so that one
// request from outside covers both directions.
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
	if r.URL.Path == "/probes" {
		_ = json.NewEncoder(w).Encode(a.probes)
		return
	}
	_ = json.NewEncoder(w).Encode(seen)
}
