// SPDX-License-Identifier: Apache-2.0

// Package trace computes what the kernel would do with a packet, without a kernel. It walks the
// packet through a [World] of network namespaces with their links, addresses, listeners and plans.
// The [Outcome] is where the packet ends, the rule that decided that, the rule's reason, and every
// rule that the packet met.
//
//	world := trace.Sidecar(plan, trace.SidecarOptions{})
//	outcome, err := trace.Trace(world, trace.Packet{
//		From:     trace.Socket{UID: 1000},
//		Protocol: interception.ProtocolTCP,
//		Dst:      netip.MustParseAddrPort("192.0.2.1:80"),
//	})
//
// # The walk
//
// A packet from a socket gets a route and a source address and passes the hook Output. If a rule
// changed its destination or its mark there, the kernel routes it again. It leaves by a link
// through Postrouting. A packet that leaves by lo comes in again by lo, without its owner but with
// its route, mark and flow. A packet that comes in by a link passes Prerouting, is routed, and
// passes Input if it is local. If the namespace forwards, a packet that is not local passes Forward
// and Postrouting and leaves by a link.
//
//	socket ── route ── Output ── route again ── Postrouting ──┬── eth0 ── neighbour
//	                                                          │ lo
//	             eth0 ──────────────────────── Prerouting ◀───┘
//	                                               │
//	 Forward, Postrouting ◀── not local ◀── route (not by lo)
//	                                               │
//	                                             Input ── socket
//
// Each hook evaluates the tables in the order of their priorities: raw, mangle, nat, filter; in
// Input, filter comes before nat. An entry's Offset moves it past other tables, past connection
// tracking (priority -200) and past nat. At each priority all plans are evaluated, each as a table
// of its own, as in nf_tables. Accept ends the evaluation of one plan's table at one priority of a
// hook. A translation ends it for the nat tables of all plans, which only Offsets order. A drop or
// rejection ends the walk.
//
// All rules of Output see the link that was found before the hook, even after a redirect or a new
// mark: the kernel sets it once.
//
// The routes are those that the links imply and those of the plans. In a table the longest prefix
// decides, then the lowest metric. A route that refuses the packet ends the walk: the packet is
// Unroutable. The policy rules are evaluated in the order of their priorities: the local table,
// then the tables of plans whose mark the packet has, then the main table.
//
// # Several namespaces
//
// [Trace] ends where the packet leaves its namespace. [Follow] goes on: by the [Wire] at the link
// into the next namespace, and by tunnels (VXLAN, GENEVE), whose outer packets are walked too. Its
// [Journey] has an Outcome for each namespace on the way, and its [Flows] are what all of them
// know:
//
//	first, err := trace.Follow(world, packet, nil)
//	reply := first.End().Answer(trace.Socket{Namespace: "server"})
//	answer, err := trace.Follow(world, reply, first.Flows)
//
// # Flows
//
// After raw, connection tracking finds the [Flow] of a packet by its zone, addresses and ports, or
// begins one. A packet with impossible TCP flags has no flow: it is invalid, and is not translated.
// Only the sockets at the ends know of an exchange that connection tracking does not see
// (Untracked). A nat table sees only the first packet of a flow, once for the destination (in
// Prerouting or Output) and once for the source (in Postrouting or Input). A connection within the
// namespace therefore meets nat in Output and Postrouting, and not in Prerouting when it comes back
// over lo. All further packets of the flow, in both directions, are translated like the first.
//
// A trace covers one packet; its outcome has the resulting flow. [Outcome.Answer] and
// [Outcome.Next] return the following packets, so that a conversation is a chain of traces:
//
//	first, err := trace.Trace(world, packet)
//	answer, err := trace.Trace(world, first.Answer(trace.Socket{UID: 1337}))
//
// A packet without a flow whose flags do not open a connection belongs to a connection that is
// older than connection tracking. Connection tracking takes it for new. Unless the packet reaches
// the socket that it was sent to, the connection breaks.
//
// # Goals
//
// The outcome is the kernel's, for every plan that [interception.Build] accepts: a difference is a
// defect. It is the same on every operating system, needs no privileges, and changes nothing. The
// texts ([Outcome.String], [Outcome.Report]) are stable enough for golden files.
//
// Trace does not guess: if the verdict depends on members of a live set that [Namespace] LiveSets
// does not list, it is [Unknown].
//
// # Backends
//
// Rules mean what they mean in nf_tables, as package render writes them. iptables differs in two
// ways: an [interception.SetZone] after [interception.NoTrack] makes nf_tables track the packet,
// but not iptables; and in iptables the Offset of an entry moves it only within its table, and one
// accept ends all entries of that table.
//
// # Non-goals
//
// Packets are TCP, UDP or echo requests and replies of ICMP. Of a TCP connection neither sequence
// numbers nor the state machine are kept: a packet of a known flow is invalid only by impossible
// flags, or before there was an answer. Connection tracking is on (in a kernel, some rule must
// require it), picks up connections midway, and no two flows compete for a port, as equal ones can
// that begin in zones of one direction. Packets that a rejection sends are not followed.
//
// Each packet of a connection is routed anew. A kernel's socket keeps the route of the first one,
// which differs for IPv6 if a policy rule selects the source that the socket has not bound.
//
// An entry at the priority of connection tracking or nat is evaluated before it.
//
// Apart from [Namespace] Forwards and Sysctls and the sysctls of its plans, a namespace has the
// kernel's default settings. Trace does not ask for the neighbour at the other end of a link;
// Follow does. No rule sees the question and its answer, but the outer packets that carry them in a
// tunnel pass rules and routes like others, without a mark.
//
// Bridges have no rules of their own, and do not send their packets through the rules of IP
// (bridge-nf-call-iptables). MTUs are not modelled.
package trace
