// SPDX-License-Identifier: Apache-2.0

// Package dataplanetest is the test kit for dataplanes, in this module and elsewhere.
//
// [Conformance] tests a dataplane against the laws of [interception.Dataplane], one subtest for
// each; [Laws] lists them. It works in network namespaces of its own, and inspects them by other
// means than the dataplane ([Kernel], or another [Ground] for a dataplane that does not work on the
// kernel). [ConformanceOptions].Without names what a dataplane cannot support. Test code that only
// uses a dataplane with the in-memory one of package fake.
//
// The other tests use real packets. A [Pod] is a network namespace as a container runtime makes one
// for a pod, wired to a second namespace that represents the rest of the world: every address of
// both families is reachable there. A [Probe] is one real connection, from a socket of a given user
// in the pod or from outside. Its [Observation] is where it ended: at which listener, with which
// original destination, or refused, or dropped.
//
//	 pod                                        elsewhere
//	┌──────────────────────────────┐           ┌────────────────────────────────┐
//	│ lo 127.0.0.1 ::1    eth0 ────┼── veth ───┼── eth0     any address is local │
//	│ listens on PodOptions.Ports  │           │ listens on the probe's port     │
//	└──────────────────────────────┘           └────────────────────────────────┘
//
// With [PodOptions].MachineLink the pod forwards what a third namespace at that link sends, like a
// virtual machine in the pod.
//
// A [Connection] stays open, to show the effect of later rules. [Agree] tests a whole dataplane: it
// compares random redirects and random packets with package trace. [Updates] tests updates: it
// kills processes on the way from plan to plan, and no connection may bypass the proxy.
//
// The caller applies its dataplane to the pod: [Pod.Path] and [Pod.File] name the namespace, and
// [Pod.Do] runs a function inside.
//
// # Goals
//
// A failure names the broken law, the plan that broke it and the content of the namespace. For each
// law, this package's tests have a dataplane that breaks it. A dataplane can be tested without
// root: [RunTests], called from TestMain, runs a package's tests in a user namespace of their own
// and never touches the host. Probes are independent and may run in parallel. A verdict comes from
// an event of the kernel: a connection, a reset, an error. A packet counts as dropped only when a
// later packet in the same queues of the kernel has arrived ([Pod.Settle]).
//
// # Non-goals
//
// Nothing here is for production. A Pod knows nothing of plans and does not judge: the caller says
// what should have happened or, in [Pod.Compare] and [Agree], package trace does. It measures no
// speed.
package dataplanetest
