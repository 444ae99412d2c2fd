// SPDX-License-Identifier: Apache-2.0

// Package podnews is what node-watcher says to the daemon about the node's pods, and about the installation's ConfigMap: lines of JSON on
// its standard output.
//
// Goal: the daemon answers a plugin from what it was told already, so that a pod's start costs no question to another process. Non-goals:
// other readers, since the two programs are always of one version, and completeness: the daemon asks about a pod of which it has heard
// nothing.
package podnews
