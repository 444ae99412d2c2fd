// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient/ambienttest"
)

// headerTimeout bounds how long a probe may take to ask.
const headerTimeout = 10 * time.Second

// readiness answers probes as ztunnel does: it is ready while the agent is there, has told of all
// pods, and none is refused (src/inpod/statemanager.rs at 77e1f1b, src/readiness/server.rs at
// c68a919).
type readiness struct {
	mu       sync.Mutex
	complete bool
	refused  map[string]bool // by UID
}

func newReadiness() *readiness { return &readiness{refused: map[string]bool{}} }

func (r *readiness) observe(e ambienttest.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case ambienttest.Connected, ambienttest.Disconnected:
		r.complete = false
		clear(r.refused)
	case ambienttest.Complete:
		r.complete = true
	case ambienttest.Refused:
		r.refused[e.Workload.UID] = true
	case ambienttest.Served, ambienttest.Ended:
		delete(r.refused, e.Workload.UID)
	}
}

func (r *readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.URL.Path != "/healthz/ready" {
		http.NotFound(w, request)
		return
	}
	r.mu.Lock()
	complete, refused := r.complete, len(r.refused)
	r.mu.Unlock()
	if !complete || refused > 0 {
		http.Error(w, fmt.Sprintf("not ready: the agent has told of all pods: %t, pods that are refused: %d", complete, refused),
			http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, "ready")
}
