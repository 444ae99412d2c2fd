// SPDX-License-Identifier: Apache-2.0

// Package agent keeps the pods of a node in ambient mode: it enrols and withdraws them while they
// run, and restores what other programs undo.
//
//	Feed ----------> pods, namespaces --ambient.Enrolled--> what is wanted of each pod
//	Agent.Enrol ---> an open namespace, from the plugin            |
//	                                                          ambient.Next
//	kernel, proxy, sets --look--> what is seen ----------------->  |
//	                                                             steps --> kernel, proxy, sets, status
//
// Each pod that the agent deals with has a worker, which takes one step after the other and looks
// again after a failure. No worker waits for another's failure. What the plugin reports and what
// the feed tells take the same way.
//
// # What is seen
//
// Nothing is believed that can be observed. The rules are those that the kernel holds. The proxy
// serves a pod if it has acknowledged it and its listeners are in the pod's namespace. A pod is
// drained when the proxy's connections have left that namespace.
//
// The kernel does not report that listeners are gone, so the agent looks for them every few seconds
// (Options.ListenerRound). A proxy that has lost a pod's listeners, and has not noticed, is told to
// forget the pod, and then told of it anew.
//
// # Restart
//
// The journal has a record of each pod that may have rules. With it the agent tells a proxy at once
// which pods it goes on with. A living pod keeps the plan in its record: later changes of its
// annotations have no effect. If a record is damaged, the plan is made anew; for a pod that is not
// wanted any more, whatever the owner has in its namespace is removed. Members of the host's sets
// that no record tells of are removed once the feed is complete.
//
// Until the feed tells of a recorded pod, or is complete without it, the agent keeps the pod as its
// record says ([ambient.Wanted].Kept): it restores rules and members that other programs have
// removed, and tells a new proxy of the pod. It takes no pod out of the mesh, and writes no status.
// Before the first step by which a pod leaves the mesh, the agent marks its record
// ([journal.Record].Leaving). It also marks the record of a pod whose rules capture nothing yet. A
// pod with such a record, or with a damaged one, stays as it is until the feed tells of it.
//
// Without any record the agent serves the proxy only when the feed is complete: a proxy that comes
// from another agent goes on with its pods, because it is told of them before it is told that these
// are all.
//
// # Withdrawal by command
//
// [Agent.Withdraw] takes pods out of the mesh, or all, as an uninstallation has to: without it,
// their rules would outlast the agent. The agent remembers it in memory alone, and so enrols the
// pods again after a restart.
//
// # Connections
//
// A pod that is enrolled or withdrawn while it runs keeps its connections, and new ones go the new
// way. The kernel cannot tell a new connection from a former one with the same addresses and ports
// that was reset in the last ten seconds (nf_conntrack_tcp_timeout_close), and treats it as the
// former was.
//
// # Non-goals
//
// The agent knows neither Kubernetes nor a client of it: see [Feed] and [Annotator]. It does not
// search for a namespace that has replaced a pod's other one: the plugin reports it.
package agent
