// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"slices"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient"
)

// Annotation decides which statuses of a pod are written to its annotation, and distinguishes
// changes by other programs from the agent's own writes. The feed may tell of an own write late, or
// not at all if another write followed soon. The zero value is for a pod that the feed has not told
// of. Its methods may be called concurrently.
type Annotation struct {
	mu      sync.Mutex
	known   bool
	told    ambient.Status   // last
	written []ambient.Status // and not told since, oldest first
	later   *time.Timer      // ends when the status that is wanted is to be written; nil if it was
}

// remembered is how many writes an [Annotation] keeps while the feed tells none of them.
const remembered = 16

// hesitation is how long a pod is pending before that is written. Most proxies serve a pod sooner
// after it is captured. Without the pause, such a pod would be annotated twice.
const hesitation = 3 * time.Second

// AfterAnswer is how long an agent leaves the processor to the plugin that it answers, before it
// goes on with the pod.
const AfterAnswer = 25 * time.Millisecond

// pause returns how long to wait before a status is written. A write keeps several processes busy,
// so the first write for a new pod gives the plugin time to end. The removal of a status does not
// wait, because the agent may forget the pod right after it.
func pause(status ambient.Status, pluginWaits bool) time.Duration {
	switch {
	case status == ambient.StatusPending:
		return hesitation
	case status == ambient.StatusEnabled && pluginWaits:
		return AfterAnswer
	}
	return 0
}

// Want calls write with the status, unless the pod has it: at once, but with
// [ambient.StatusPending] three seconds later, and with [ambient.StatusEnabled] 25 ms later if the
// plugin waits for the pod, and then only if no other status was wanted meanwhile. It never
// replaces "enabled" by "pending": control planes take that for a pod outside the mesh, to which
// other proxies send clear text. Write may be called from a goroutine of its own, and must not call
// methods of the annotation.
func (a *Annotation) Want(status ambient.Status, pluginWaits bool, write func(ambient.Status)) {
	pause := pause(status, pluginWaits)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopLocked()
	if pause == 0 {
		a.writeLocked(status, write)
		return
	}
	var later *time.Timer
	later = time.AfterFunc(pause, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.later == later {
			a.later = nil
			a.writeLocked(status, write)
		}
	})
	a.later = later
}

// Stop cancels a write that is still to come.
func (a *Annotation) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopLocked()
}

func (a *Annotation) stopLocked() {
	if a.later != nil {
		a.later.Stop()
		a.later = nil
	}
}

func (a *Annotation) writeLocked(status ambient.Status, write func(ambient.Status)) {
	last := a.told
	if n := len(a.written); n > 0 {
		last = a.written[n-1]
	} else if a.known && last == status {
		return
	}
	if status == ambient.StatusPending && (last == ambient.StatusEnabled || a.told == ambient.StatusEnabled) {
		return
	}
	a.written = append(a.written, status)
	if len(a.written) > remembered {
		a.written = slices.Delete(a.written, 0, 1)
	}
	write(status)
}

// Tell notes the status that the feed tells, and reports whether the agent has to go by it: whether
// it is the first one, or a change that the agent has not written. An earlier agent may have
// written it, or this agent before the pod came back.
func (a *Annotation) Tell(status ambient.Status) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known && status == a.told {
		return false
	}
	known := a.known
	a.known, a.told = true, status
	own := slices.Index(a.written, status)
	a.written = slices.Delete(a.written, 0, own+1)
	return !known || own < 0
}
