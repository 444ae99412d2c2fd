// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"slices"

	"github.com/meshcni/meshcni/ambient"
)

// Annotation distinguishes changes of a pod's status annotation by other programs from the agent's
// own writes. The feed may tell of an own write late, or not at all if another write followed soon.
// The zero value is for a pod that the feed has not told of.
type Annotation struct {
	known   bool
	told    ambient.Status   // last
	written []ambient.Status // and not told since, oldest first
}

// remembered is how many writes an [Annotation] keeps while the feed tells none of them.
const remembered = 16

// Write notes that the agent has the status written.
func (a *Annotation) Write(status ambient.Status) {
	a.written = append(a.written, status)
	if len(a.written) > remembered {
		a.written = slices.Delete(a.written, 0, 1)
	}
}

// Tell notes the status that the feed tells, and reports whether the agent has to go by it: whether
// it is the first one, or a change that the agent has not written. An earlier agent may have
// written it, or this agent before the pod came back.
func (a *Annotation) Tell(status ambient.Status) (news bool) {
	if a.known && status == a.told {
		return false
	}
	known := a.known
	a.known, a.told = true, status
	own := slices.Index(a.written, status)
	a.written = slices.Delete(a.written, 0, own+1)
	return !known || own < 0
}
