// SPDX-License-Identifier: Apache-2.0

// Package apiserver sends requests to the API server as the pod's service account, one at a time.
//
// Goals: little memory, bounded answers, no lasting connection. The credential is read for each
// request, since the kubelet renews it, and is never sent over plain http. A [Taint] is removed
// without losing another one, even if another program edits the node at the same moment, and is
// never set again, so that no later fault can empty a node.
//
// Non-goals: watches, retries, and knowing whether the plugin is installed.
package apiserver
