// SPDX-License-Identifier: Apache-2.0

// Package trace says what the kernel would do with a packet, without a kernel: it walks the packet
// through a [World] of network namespaces with their links, addresses, listeners and plans, and
// returns an [Outcome]: where the packet ends, which rule decided that and why the rule is there,
// and every rule it met.
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
// A packet that a socket sends gets a route and a source address, and is shown to the hook Output.
// If a rule changed its destination or its mark there, it is routed again. It leaves through
// Postrouting by a link; and what leaves by lo comes back in by lo, without its owner and with its
// route, mark and flow. A packet that comes by a link is shown to Prerouting, routed, and shown to
// Input when it is local. Where the namespace forwards, a packet that is not local is shown to
// Forward and Postrouting, and leaves by a link.
//
//	socket ── route ── Output ── route again ── Postrouting ──┬── eth0 ── neighbour
//	                                                          │ lo
//	             eth0 ──────────────────────── Prerouting ◀───┘
//	                                               │
//	 Forward, Postrouting ◀── not local ◀── route (not by lo)
//	                                               │
//	                                             Input ── socket
//
// At each hook the tables are asked in the order of their priorities: raw, mangle, nat, filter; in
// Input filter comes before nat. An entry's Offset moves it, past other tables and past connection
// tracking, which stands at -200, and nat. For each priority all plans are asked, each as a table
// of its own, as in nf_tables: accept ends the questioning of what one plan's table has at one
// priority of a hook, a translation that of all plans' nat, whose Offsets decide among themselves
// only, a drop or rejection the walk.
//
// Within Output all rules see the link that was found before the hook, also behind a redirect or a
// new mark: the kernel sets it once.
//
// Routes are those that the links imply and those of the plans. The policy rules are asked in the
// order of their priorities: first the local table, then those of plans that the mark meets, then
// the main table.
//
// # Flows
//
// Behind raw, connection tracking finds the [Flow] of a packet by its zone, addresses and ports, or
// begins one. What it can make nothing of, by the flags of TCP, has no flow: it is invalid, and is
// not translated. Of an exchange that it is not shown, the sockets at the ends know (Untracked). A
// nat table is asked only for the first packet of a flow, once for the destination (in Prerouting
// or Output) and once for the source (in Postrouting or Input): a connection made within the
// namespace meets nat in Output and Postrouting, never in Prerouting when it comes back over lo.
// All further packets of the flow, in both directions, are translated as it is bound.
//
// A trace is of one packet, and its outcome has the flow that it leaves behind. [Outcome.Answer]
// and [Outcome.Next] make the following packets of it, so that a conversation is a chain of traces:
//
//	first, err := trace.Trace(world, packet)
//	answer, err := trace.Trace(world, first.Answer(trace.Socket{UID: 1337}))
//
// A packet with flags that don't open a connection, and without a flow, is one of a connection that
// lived before anybody looked: connection tracking takes it for new, and unless it comes to the
// socket that it was sent to, that connection breaks.
//
// # Goals
//
// The outcome is the kernel's, for every plan that [interception.Build] accepts: where both are
// asked, a difference is a defect. It is the same on every operating system, needs no privileges,
// and changes nothing. Its texts ([Outcome.String], [Outcome.Report]) are stable enough for golden
// files.
//
// What the world doesn't tell is not guessed: where members of a live set decide that [Namespace]
// LiveSets doesn't give, the verdict is [Unknown].
//
// # Backends
//
// Rules mean what they mean in nf_tables, as package render writes them. iptables differs in two
// things: [interception.SetZone] behind [interception.NoTrack] has the packet tracked in nf_tables,
// and not in iptables; and the Offset of an entry moves it there within its table alone, all of
// whose entries one accept ends.
//
// # Non-goals
//
// Packets are TCP or UDP. Of a TCP connection neither sequence numbers nor the machine of its
// states are kept: a packet of a known flow is invalid by impossible flags only, or before there
// was an answer. Connection tracking is on (in a kernel, some rule must ask for it), picks up
// connections in their midst, and no two flows want the same port. What a rejection sends is not
// followed.
//
// What stands at the priority of connection tracking or nat is asked before it.
//
// A namespace has the kernel's default settings beside [Namespace] Forwards and the sysctls of its
// plans (rp_filter not strict, tcp_fwmark_accept off), save for what plans say about route_localnet
// and accept_local. Whoever sits beyond a link is a neighbour that is not looked at.
package trace
