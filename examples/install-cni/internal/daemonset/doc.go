// SPDX-License-Identifier: Apache-2.0

// Package daemonset asks the API server whether a DaemonSet is still wanted: what a daemon that was told to stop must know, to tell an
// upgrade, of which nothing may be noticed, from the end of the installation.
//
// An uninstall can't be undone for the pods that start after it, so [Client.Deleted] says yes only on evidence from a server that was
// verified: the deletion of the DaemonSet or of its namespace, the DaemonSet's absence where it was seen before ([Memory]), or a refusal
// (401, 403) together with the word of a watch that the installation has ended. A refusal alone may mean that a service account or a role
// was made anew. Everything else is [ErrUnknown], with the reason. The rule is one pure function, decide.
//
// Requests go by net/http with the pod's service account; the role they need is get of that one DaemonSet and of its namespace, and get of
// nodes to find out whether the DaemonSet still selects this one. A program that ends an installation on all nodes deletes the DaemonSet
// with its pods ([Client.Delete]), which takes delete, too.
//
// Non-goals: watching (the caller tells what a watch has said, [Memory.Hear]), and taints.
package daemonset
