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

// viaHeader has what each proxy on the way has written: direction and name.
const viaHeader = "X-Mesh-Via"

// answer is what an application says about a request.
type answer struct {
	// Application is who answers.
	Application string `json:"application"`
	// Address is where the application was asked, Remote who asked, as it sees them.
	Address string `json:"address"`
	Remote  string `json:"remote"`
	// Via are the proxies on the way, the first one first.
	Via []string `json:"via"`
	// Asked is what the URL answered that the request had the application ask.
	Asked json.RawMessage `json:"asked,omitempty"`
}

// application answers requests, and remembers the probes among them.
type application struct {
	name string

	mu     sync.Mutex
	probes []answer
}

// serve answers at ports of all addresses until the context ends.
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

// ServeHTTP answers with what it sees of the request; at /probes with what it has seen of the kubelet's. With ?ask=URL it asks there first,
// and hands on what answers: one request from outside sees both directions then.
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
