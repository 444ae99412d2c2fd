// SPDX-License-Identifier: Apache-2.0

package ambienttest

import "github.com/meshcni/meshcni/ambient/zds"

// Event is something that a [Proxy] has done, for logs.
type Event struct {
	// Kind is what it has done.
	Kind EventKind
	// Workload is the pod; of one that has ended only its UID. It is zero for events of connections.
	Workload zds.Workload
	// Err is why a pod was refused, or how the agent broke the protocol. Otherwise it is nil.
	Err error
}

// EventKind is the kind of an [Event].
type EventKind string

// The kinds.
const (
	// Connected begins a connection to the agent, and Disconnected ends it. Complete means that the
	// agent has told of all pods.
	Connected    EventKind = "connected"
	Complete     EventKind = "snapshot complete"
	Disconnected EventKind = "disconnected"
	// Served means that the listeners of a pod are open, Refused that they are not, and Ended that
	// they have been closed.
	Served  EventKind = "pod served"
	Refused EventKind = "pod refused"
	Ended   EventKind = "pod ended"
)

func (o *ProxyOptions) observe(e Event) {
	if o.Observe != nil {
		o.Observe(e)
	}
}
