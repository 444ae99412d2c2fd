// SPDX-License-Identifier: Apache-2.0

// Package meshcni is the root of the meshcni module. It holds no code; the library is in its rooms,
// and data goes through them in one direction:
//
//	annotations --Dialect.Parse--> Redirect --sidecar.Plan--> Plan --Apply--> kernel --Observe--> State --Diff--> Drift
//	                                           (Facts)        |
//	                                                          +-- trace.Trace(world, packet)   no root, any OS
//	                                                          +-- proof.Equivalent and others  about all packets at once
//	                                                          +-- render                       text and pictures
//	conflist bytes --conflist.Insert / Remove--> conflist bytes
//	service account --kubeconfig.Build--> kubeconfig
//	Pod --repair.Diagnose--> Finding --repair.Decide--> Action
//
// The rooms:
//
//   - [github.com/meshcni/meshcni/interception] turns what a pod asks for into a plan of netfilter
//     rules. Pure.
//   - [github.com/meshcni/meshcni/interception/trace] walks a packet through a plan. Pure.
//   - [github.com/meshcni/meshcni/interception/proof] compares plans, explains them, and finds
//     their dead rules. Pure.
//   - [github.com/meshcni/meshcni/interception/render] writes a plan as text. Pure.
//   - [github.com/meshcni/meshcni/interception/nftables] applies a plan by netlink, atomically,
//     without any program on the host, and reads back what the kernel holds.
//   - [github.com/meshcni/meshcni/interception/iptables] does the same by iptables-restore, where
//     nftables is not to be used.
//   - [github.com/meshcni/meshcni/interception/choice] finds out which of them this machine's
//     kernel has all for.
//   - [github.com/meshcni/meshcni/interception/netfacts] finds out what a planner must know of a
//     namespace.
//   - [github.com/meshcni/meshcni/interception/podsource] is where a plugin learns about its pod.
//   - [github.com/meshcni/meshcni/interception/dataplanetest] holds any dataplane to its laws, with
//     real packets; its package fake is one in memory, for unit tests. The fake is pure.
//   - [github.com/meshcni/meshcni/conflist] splices a plugin into a CNI configuration list, byte by
//     byte. Pure.
//   - [github.com/meshcni/meshcni/kubeconfig] builds a kubeconfig. Pure.
//   - [github.com/meshcni/meshcni/repair] says which pods are not captured, and what is to be done
//     about each. Pure.
//
// The pure packages import the standard library only and run on any operating system. In examples
// are the CNI plugin istio-cni and the node daemon install-cni, which are built from these
// packages, a demonstration of both, and meshplan, which asks about plans on the command line.
package meshcni
