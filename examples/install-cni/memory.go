// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/agent"
	"github.com/meshcni/meshcni/internal/footprint"
)

// trimAfter is how long after the last work a start or a wave of pods is over.
const trimAfter = 10 * time.Second

// newMemory returns what gives back the memory that work needs and waiting doesn't.
func newMemory(env environment, log *slog.Logger) *footprint.Trimmer {
	return footprint.NewTrimmer(env.trimAfter, func() {
		if err := env.trim(); err != nil {
			log.Warn("memory that isn't in use is not given back", "error", err)
		}
	})
}

// working counts the requests of plugins as work.
type working struct {
	agent.Observer
	memory *footprint.Trimmer
}

// Request leaves out the question for the agent's status: runtimes ask it every few seconds, and would keep the memory from ever being
// given back.
func (w working) Request(request, outcome string) {
	w.Observer.Request(request, outcome)
	if request != agent.StatusRequest {
		w.memory.Worked()
	}
}
