// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"time"

	"github.com/meshcni/meshcni/ambient"
)

// Count is something that has happened, for metrics.
type Count struct {
	// What is what has happened.
	What Counted
	// Of says what it has happened to, in the words that the constants of What name.
	Of string
	// Times is how often; at least 1.
	Times int
	// Duration is how long it took, with [CountEnrolled].
	Duration time.Duration
}

// Counted is a kind of [Count]. The texts are stable.
type Counted string

// The kinds.
const (
	// CountChange: the feed has told of pods that are new to the agent ("add"), that have changed
	// ("update"), or that are gone ("delete").
	CountChange Counted = "change"
	// CountDrift: something that was as planned was found changed by another program: a pod's rules
	// ("rules"), the proxy's listeners in a pod ("listeners"), the rules of the host ("host"), or a
	// member of its sets ("sets").
	CountDrift Counted = "drift"
	// CountHealed: it is as planned again, in the words of CountDrift. A pod that leaves the mesh
	// before is not counted.
	CountHealed Counted = "healed"
	// CountEdit: a member was added to the host's sets ("add") or removed ("remove").
	CountEdit Counted = "edit"
	// CountEnrolled: a pod that no plugin has handed over was enrolled, while it ran ("feed"). The
	// time begins when the agent can look for its namespace. Pods that have a record are not counted.
	CountEnrolled Counted = "enrolled"
)

// The words of [CountDrift] and [CountHealed].
const (
	driftRules     = "rules"
	driftListeners = "listeners"
	driftHost      = "host"
	driftSets      = "sets"
)

// count tells of something that has happened, unless it was not at all.
func (o *Options) count(what Counted, of string, times int) {
	if o.Count != nil && times > 0 {
		o.Count(Count{What: what, Of: of, Times: times})
	}
}

// drifts are the parts of a pod that other programs have changed, until they are as planned again.
type drifts struct {
	settled bool // the pod is as wanted, in the namespace that is open
	found   []string
}

// unsettle forgets what was found: the pod is not what it was.
func (d *drifts) unsettle() { *d = drifts{} }

// settle notes that the pod is as wanted, and returns what is healed by that.
func (d *drifts) settle() (healed []string) {
	healed, d.found, d.settled = d.found, nil, true
	return healed
}

// find notes that something is not as it was when the pod was as wanted, and reports whether that
// is new.
func (d *drifts) find(part string) bool {
	if !d.settled || slices.Contains(d.found, part) {
		return false
	}
	d.found = append(d.found, part)
	return true
}

// findDrift counts what is not as it was when the pod was as wanted.
func (w *worker) findDrift(wanted ambient.Wanted) {
	if !wanted.Enrolled {
		w.drifts.unsettle() // the agent itself changes everything
		return
	}
	for part, is := range map[string]bool{
		driftRules: w.seen.Rules != ambient.PlannedRules, driftListeners: w.seen.Proxy == ambient.ProxyLost,
	} {
		if is && w.drifts.find(part) {
			w.agent.options.count(CountDrift, part, 1)
		}
	}
}

// countSettled counts what is healed, and an enrolment, when the pod is as wanted.
func (w *worker) countSettled(wanted ambient.Wanted) {
	if !wanted.Enrolled {
		return
	}
	o := &w.agent.options
	for _, part := range w.drifts.settle() {
		o.count(CountHealed, part, 1)
	}
	if o.Count != nil && !w.counted && w.event == nil {
		o.Count(Count{What: CountEnrolled, Of: "feed", Times: 1, Duration: time.Since(w.began)})
	}
	w.counted = true
}
