// SPDX-License-Identifier: Apache-2.0

// Package trace says what the kernel would do with a packet, without a kernel: it walks the packet through a [World] of
// network namespaces with their links, addresses, listeners and plans, and returns an [Outcome]: where the packet ends, which
// rule decided that and why the rule is there, and every rule it met.
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
// A packet that a socket sends gets a route and a source address, and is shown to the hook Output. If a rule changed its destination
// it is routed again. It leaves through Postrouting by a link; and what leaves by lo comes back in by lo, without its owner and
// with its route. A packet that comes by a link is shown to Prerouting, routed, and shown to Input when it is local.
//
//	socket ── route ── Output ── route again ── Postrouting ──┬── eth0 ── neighbour
//	                                                          │ lo
//	             eth0 ──────────────────────── Prerouting ◀───┘
//	                                               │
//	                          not local ◀── route (not by lo)
//	                                               │
//	                                             Input ── listener
//
// At each hook the tables are asked in the order of their priorities: raw, mangle, nat, filter; in Input filter comes before nat. For
// each table all plans are asked, each as a table of its own, as in nftables: accept ends the questioning of one plan's table
// at one hook, a redirect that of all plans' nat, a drop the walk.
//
// A nat table is asked only for the first packet of a connection, once for the destination (in Prerouting or Output) and once for
// the source (in Postrouting or Input): a connection made within the namespace meets nat in Output and Postrouting, never in
// Prerouting when it comes back over lo.
//
// Within Output all rules see the link that was found before the hook, also behind a redirect: the kernel sets it once.
//
// # Goals
//
// The outcome is the kernel's, for every plan that [interception.Build] accepts: where both are asked, a difference is a defect.
// It is the same on every operating system, needs no privileges, and changes nothing. Its texts ([Outcome.String],
// [Outcome.Report]) are stable enough for golden files.
//
// # Non-goals
//
// A trace follows one packet, the first of its connection, TCP or UDP; what an answer would meet is not asked. A namespace does not
// forward (what is not local ends before the hook Forward), has the kernel's default settings (route_localnet and
// accept_local off, rp_filter not strict), and no routes but those its links imply. Whoever sits beyond a link is a
// neighbour that is not looked at.
package trace
