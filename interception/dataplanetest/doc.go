// SPDX-License-Identifier: Apache-2.0

// Package dataplanetest is the test kit for dataplanes, this module's and anybody's.
//
// [Conformance] holds a dataplane to the laws of [interception.Dataplane], each of which is a
// subtest: [Laws] lists them. It works in network namespaces of its own, and looks into them by
// other means than the dataplane ([Kernel]; another [Ground], where a dataplane does not work on
// the kernel). What a dataplane cannot have is declared by name ([ConformanceOptions].Without).
// Code that only uses a dataplane is tested with the one of package fake, in memory.
//
// Below that are real packets. A [Pod] is a network namespace as a container runtime makes one for
// a pod, wired to a second namespace that stands for the rest of the world: there every address of
// both families is reachable. A [Probe] is one real connection, from a socket of a given user in
// the pod or from outside; its [Observation] says where it ended: at which listener, with which
// original destination, or refused, or dropped.
//
//	 pod                                        elsewhere
//	┌──────────────────────────────┐           ┌────────────────────────────────┐
//	│ lo 127.0.0.1 ::1    eth0 ────┼── veth ───┼── eth0     any address is local │
//	│ listens on PodOptions.Ports  │           │ listens on the probe's port     │
//	└──────────────────────────────┘           └────────────────────────────────┘
//
// With [PodOptions].MachineLink the pod forwards what a third namespace behind that link sends, as
// for a virtual machine of its own.
//
// A [Connection] stays, to see what rules do to it that come later. [Agree] is the test of a whole
// dataplane: random redirects, random packets, and what package trace says of them. [Updates] is
// the test of updates: processes are killed on the way from plan to plan, and no connection may
// pass by the proxy.
//
// The dataplane under test is applied to the pod by whatever means it has: [Pod.Path] and
// [Pod.File] name the namespace, and [Pod.Do] runs a function inside.
//
// # Goals
//
// A law that is broken is named, with the plan that broke it and what the namespace held. Each law
// has a dataplane that breaks it among this package's tests. Anybody can test their own dataplane
// with it, without root: [RunTests], called from TestMain, runs a package's tests in a user
// namespace of their own, and the host is never touched. Probes are independent of each other and
// may run in parallel. A verdict comes from an event of the kernel's: a connection made, a reset,
// an error. A packet counts as dropped in silence only when one that was sent after it, into the
// same queues of the kernel, has arrived ([Pod.Settle]).
//
// # Non-goals
//
// Nothing here is for production. A Pod knows nothing of plans, and doesn't judge: what should have
// happened is the caller's to say or, where [Pod.Compare] and [Agree] are asked, package trace's.
// It measures no speed.
package dataplanetest
