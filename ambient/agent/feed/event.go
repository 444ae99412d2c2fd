// SPDX-License-Identifier: Apache-2.0

package feed

// Event is something that happened on a side of the feed.
type Event struct {
	// Kind is what happened.
	Kind EventKind
	// Connection numbers this side's connections, from 1; 0 if the event is about none.
	Connection int
	// UID is that of the pod, if the event is about one.
	UID string
	// Err is why; nil for what went well.
	Err error
}

// EventKind is the kind of an [Event]. The texts are stable: logs and metrics use them.
type EventKind string

// The kinds.
const (
	// Connected: both sides have said hello.
	Connected EventKind = "connected"
	// Completed: with this connection the agent has been told of all pods.
	Completed EventKind = "completed"
	// Disconnected: a connection has ended, or there was none to be had.
	Disconnected EventKind = "disconnected"
	// NotAnnotated: a pod has not got its status yet. The agent asks again.
	NotAnnotated EventKind = "not-annotated"
	// NotTold: what the source tells of a pod or a namespace cannot be sent, and no agent counts as
	// told of all pods. UID is the pod's.
	NotTold EventKind = "not-told"
)
