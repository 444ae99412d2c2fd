// SPDX-License-Identifier: Apache-2.0

// Package nodetaint takes a taint off a node: one that keeps pods from new nodes until the plugin is there
// (https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/). Who makes nodes puts it on, as with the kubelet's
// --register-with-taints.
//
// Goals: no taint of anybody else is ever lost, whoever edits the node at the same moment; the taint is never put back, so that nothing
// that goes wrong later can empty a node. Non-goals: putting taints on, and knowing whether the plugin is there.
package nodetaint
