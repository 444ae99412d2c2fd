// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// report is what ?verbose answers.
type report struct {
	Healthy bool        `json:"healthy"`
	Ready   bool        `json:"ready"`
	Parts   []Condition `json:"parts"`
}

// Handler serves /healthz and /readyz: as lines of text, with ?verbose as JSON that names all parts.
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

// answer is 503 when there are reasons.
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
	all := report{Healthy: true, Ready: true, Parts: s.Conditions()}
	for _, c := range all.Parts {
		all.Healthy = all.Healthy && c.Unhealthy == ""
		all.Ready = all.Ready && (c.Ready || c.Auxiliary)
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil { // of these types it can't be
		return "{}\n"
	}
	return string(data) + "\n"
}

// Serve answers on the listener until the context ends, then closes it. A connection is for one request, and there are
// 32 at once: for one more, the oldest is closed. The error is nil after such an end.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      10 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
	// Any pod of the cluster may connect. None keeps a connection, so that the memory of this process isn't theirs.
	server.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { server.Close() }) //nolint:errcheck // Serve below returns then
	defer stop()
	if err := server.Serve(&crowd{Listener: listener, most: mostConnections}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
