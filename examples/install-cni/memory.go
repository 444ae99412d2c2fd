// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/meshcni/meshcni/examples/install-cni/internal/agent"
	"github.com/meshcni/meshcni/internal/footprint"
)

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
