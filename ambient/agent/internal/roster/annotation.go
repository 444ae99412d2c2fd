// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"slices"

	"github.com/meshcni/meshcni/ambient"
)

// Annotation tells what others have made of a pod's status annotation from what the agent itself
// has written, which the feed may tell late, or not at all if another write came soon after. The
// zero value is for a pod that the feed has not told of.
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

// Tell notes the status that the feed tells, and reports whether the agent has to go by it: it is
// the first one, or another one than before that the agent has not written. That may also be a
// write of an earlier agent, or of this one before it dealt with the pod anew.
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
