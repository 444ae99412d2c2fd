// SPDX-License-Identifier: Apache-2.0

// Package daemonset asks the API server whether a DaemonSet is still wanted. A daemon that is
// stopping must know, to distinguish an upgrade, which must disturb nothing, from the end of the
// installation.
//
// An uninstall cannot be undone for the pods that start after it. So [Client.Deleted] needs
// evidence from a verified server: the deletion of the DaemonSet or of its namespace, the absence
// of a DaemonSet that was seen before ([Memory]), or a refusal (401, 403) together with a watch's
// word that the installation has ended. A refusal alone may mean that a service account or a role
// was recreated. Everything else is [ErrUnknown], with the reason. The rule is one pure function,
// decide.
//
// Requests use net/http with the pod's service account. Its role needs get of this DaemonSet and of
// its namespace, and get of nodes to learn whether the DaemonSet still selects this one. A program
// that ends an installation on all nodes deletes the DaemonSet with its pods ([Client.Delete]),
// which needs delete, too.
//
// Non-goals: watching (the caller passes on a watch's reports, [Memory.Hear]), and taints.
package daemonset
