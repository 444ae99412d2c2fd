// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"reflect"
	"sync"

	"github.com/meshcni/meshcni/interception"
)

// mostPlans bounds how many plans are compared with a new one.
const mostPlans = 16

// plans shares plans among pods: few pods have rules of their own, and a plan takes 12 KiB.
type plans struct {
	mu    sync.Mutex
	known []*interception.Plan // the latest last
}

// share returns a plan that equals this one. Plans are not changed.
func (p *plans) share(plan *interception.Plan) *interception.Plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, known := range p.known {
		if reflect.DeepEqual(known, plan) {
			return known
		}
	}
	if len(p.known) == mostPlans {
		p.known = append(p.known[:0], p.known[1:]...)
	}
	p.known = append(p.known, plan)
	return plan
}
