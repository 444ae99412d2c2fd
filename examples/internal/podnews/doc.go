// SPDX-License-Identifier: Apache-2.0

// Package podnews defines what the node-watcher reports to the daemon about the node's pods and the
// installation's ConfigMap: lines of JSON on its standard output.
//
// Goal: the daemon answers a plugin from earlier reports, so that the start of a pod takes no
// request to another process. Non-goals: other readers, since the two programs always have the same
// version, and completeness: the daemon asks about a pod without a report.
package podnews
