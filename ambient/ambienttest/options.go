// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"net/netip"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/zds"
)

// ProxyOptions are the settings of a [Proxy].
type ProxyOptions struct {
	// Socket is the path of the agent's socket.
	Socket string
	// Numbers are the marks and ports to use; usually [ambient.IstioNumbers].
	Numbers ambient.Numbers
	// Transparent makes the listeners transparent, as rules with TPROXY require, which Istio wrote
	// until 1.24.
	Transparent bool
	// Tunnels reports whether the pod of an address is served by a stand-in, too. Connections to it
	// then go to its proxy's tunnel port rather than to the application. It may be nil: there are
	// no tunnels.
	Tunnels func(netip.Addr) bool
	// Resolvers answer the pods' queries: the first of the query's family. Without any the proxy has
	// no listeners for queries.
	Resolvers []netip.AddrPort
	// Refuse returns why the proxy refuses to serve a pod, or "". It may be nil. A pod that was
	// refused is not retried by itself.
	Refuse func(zds.Workload) string
	// Strict makes the proxy reset connections to its pods that come without a tunnel, as ztunnel does
	// where a policy demands mTLS.
	Strict bool
	// Observe is told what the proxy does, also by several goroutines at once. It may be nil.
	Observe func(Event)
	// Faults make the proxy misbehave.
	Faults Faults
}

// Faults are what a proxy does wrong on a connection to the agent. The zero value is nothing. For
// listeners that are lost, see [Proxy.LoseListeners].
type Faults struct {
	// NoHello has it connect and say nothing.
	NoHello bool
	// NoAck has it acknowledge nothing.
	NoAck bool
	// LateAck is how long it waits before each acknowledgement.
	LateAck time.Duration
	// RefuseFirst is how many times it refuses each pod before it serves it.
	RefuseFirst int
	// Unasked has it acknowledge something right after its hello.
	Unasked bool
	// HangUpAfter is the number of requests after which it hangs up instead of answering; never if 0.
	HangUpAfter int
	// Exit has it end for good where HangUpAfter has it hang up, with all listeners and connections,
	// as if its process had died ([Proxy.Done]).
	Exit bool
	// Twice has it keep two connections at once, and answer on both.
	Twice bool
}

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
