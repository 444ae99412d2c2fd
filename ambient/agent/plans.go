// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"reflect"
	"slices"
	"sync"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// mostPlans bounds how many plans are compared with a new one.
const mostPlans = 16

// plans shares plans among pods: few pods have rules of their own, and a plan takes 12 KiB.
type plans struct {
	mu    sync.Mutex
	known []*interception.Plan // the latest last
	made  []made               // likewise
}

// settings are what the plans of an agent differ by.
type settings struct {
	overrides ambient.Overrides
	facts     interception.Facts
	sparing   bool
}

// made is a plan with what it was made from.
type made struct {
	settings
	plan *interception.Plan
}

// of returns the plan for the settings, which it makes unless it has made it before.
func (p *plans) of(s settings, create func() (*interception.Plan, error)) (*interception.Plan, error) {
	if plan := p.madeOf(s); plan != nil {
		return plan, nil
	}
	plan, err := create()
	if err != nil {
		return nil, err
	}
	plan = p.share(plan)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = appendBounded(p.made, made{s, plan})
	return plan, nil
}

func (p *plans) madeOf(s settings) *interception.Plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := slices.IndexFunc(p.made, func(m made) bool { return reflect.DeepEqual(m.settings, s) }); at >= 0 {
		return p.made[at].plan
	}
	return nil
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
	p.known = appendBounded(p.known, plan)
	return plan
}

// appendBounded appends one, and drops the first if there are too many.
func appendBounded[T any](all []T, one T) []T {
	if len(all) == mostPlans {
		all = slices.Delete(all, 0, 1)
	}
	return append(all, one)
}
