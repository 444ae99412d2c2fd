// SPDX-License-Identifier: Apache-2.0

// Package nodetaint removes a taint from a node: the taint that keeps pods from new nodes until the
// plugin is installed
// (https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/). The program that
// creates the nodes sets it, for example with the kubelet's --register-with-taints.
//
// Goals: no other taint is ever lost, even if another program edits the node at the same moment;
// the taint is never set again, so that no later fault can empty a node. Non-goals: setting taints,
// and knowing whether the plugin is installed.
package nodetaint
