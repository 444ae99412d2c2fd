// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Report is the answer to ?verbose.
type Report struct {
	Healthy bool        `json:"healthy"`
	Ready   bool        `json:"ready"`
	Parts   []Condition `json:"parts"`
}

// Handler serves /healthz and /readyz: as lines of text, or with ?verbose as JSON about all parts.
func (s *State) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if verbose(r) {
			s.Look(r.Context())
		}
		var sick []string
		for _, c := range s.Conditions() {
			if c.Unhealthy != "" {
				sick = append(sick, c.Part+": "+c.Unhealthy)
			}
		}
		s.answer(w, r, "not healthy", sick)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		s.Look(r.Context())
		s.answer(w, r, "not ready", s.Reasons())
	})
	return mux
}

// answer sends 503 if there are reasons.
func (s *State) answer(w http.ResponseWriter, r *http.Request, verdict string, reasons []string) {
	status, kind, text := http.StatusOK, "text/plain; charset=utf-8", "ok\n"
	if len(reasons) > 0 {
		status, text = http.StatusServiceUnavailable, verdict+"\n"+strings.Join(reasons, "\n")+"\n"
	}
	if verbose(r) {
		kind, text = "application/json", s.report()
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprint(w, text)
}

func verbose(r *http.Request) bool { return r.URL.Query().Has("verbose") }

func (s *State) report() string {
	all := Report{Healthy: true, Ready: true, Parts: s.Conditions()}
	for _, c := range all.Parts {
		all.Healthy = all.Healthy && c.Unhealthy == ""
		all.Ready = all.Ready && (c.Ready || c.Auxiliary)
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil { // impossible for these types
		return "{}\n"
	}
	return string(data) + "\n"
}

// Serve answers on the listener until the context ends, then closes it and returns nil. A
// connection serves one request. At most 32 are open at once: for one more, the oldest is closed.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ConnState:         (&crowd{most: mostConnections}).note,
	}
	// Any pod of the cluster may connect. No connection is kept, so that pods cannot use up this
	// process's memory.
	server.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { server.Close() }) //nolint:errcheck // Serve returns the error
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// mostConnections is how many connections a port has at once: room for the kubelet, several
// Prometheus servers and a few people, in about a megabyte.
const mostConnections = 32

// crowd bounds the number of a server's open connections. It closes the oldest for a new one: a
// client that opens connections and leaves them open loses them, and the kubelet's short probe is
// answered.
type crowd struct {
	most int
	mu   sync.Mutex
	open []net.Conn // the oldest first
}

// note is the server's ConnState.
func (c *crowd) note(connection net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case state == http.StateClosed:
		c.open = slices.DeleteFunc(c.open, func(other net.Conn) bool { return other == connection })
	case state != http.StateNew:
	case len(c.open) < c.most:
		c.open = append(c.open, connection)
	default:
		_ = c.open[0].Close() // the server notices
		c.open = append(c.open[1:], connection)
	}
}
