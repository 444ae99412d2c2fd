// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// State is what the parts of the daemon say of themselves. It is safe for use by several goroutines; make it with [NewState].
type State struct {
	mu      sync.Mutex
	order   []string
	reasons map[string]string // empty for a part that is ready
}

// NewState has every part not ready, because it is starting.
func NewState(parts ...string) *State {
	s := &State{order: slices.Clone(parts), reasons: map[string]string{}}
	for _, part := range parts {
		s.reasons[part] = "starting"
	}
	return s
}

// Set records why a part isn't ready, or with an empty reason that it is. It reports whether that is news.
func (s *State) Set(part, reason string) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.reasons[part]
	if !known {
		s.order = append(s.order, part)
	}
	s.reasons[part] = reason
	return !known || old != reason
}

// Reasons lists "part: reason" for the parts that aren't ready, in their order. It is empty when all are ready.
func (s *State) Reasons() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var reasons []string
	for _, part := range s.order {
		if reason := s.reasons[part]; reason != "" {
			reasons = append(reasons, part+": "+reason)
		}
	}
	return reasons
}

// Handler serves /healthz and /readyz.
func (s *State) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reasons := s.Reasons(); len(reasons) > 0 {
			answer(w, http.StatusServiceUnavailable, "not ready\n"+strings.Join(reasons, "\n"))
			return
		}
		answer(w, http.StatusOK, "ok")
	})
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}
