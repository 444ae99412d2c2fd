// SPDX-License-Identifier: Apache-2.0

// Package daemonset asks the API server whether a DaemonSet is still wanted: what a daemon that was told to stop must know, to tell an
// upgrade, of which nothing may be noticed, from the end of the installation.
//
// An uninstall can't be undone for the pods that start behind it, so [Client.Deleted] says yes only on evidence: of a server that was
// verified, the DaemonSet's deletion, its absence where it was seen before, or that the server has ceased to know a token which it took a
// short while ago ([Memory]). Everything else is [ErrUnknown], with the reason.
//
// It is one GET, by net/http and with the pod's service account; the role it needs is get of that one DaemonSet. Who ends an installation on
// all nodes deletes the DaemonSet with its pods ([Client.Delete]), which takes delete, too. A DaemonSet that is there may have ceased to select
// this node, which takes get of nodes to find out.
//
// Non-goals: watching, and taints.
package daemonset
