// SPDX-License-Identifier: Apache-2.0

// Package upstream knows the rules that Istio's own node agents write for ambient mode, as plans,
// and recognises them among the rules of other programs:
//
//	PodRules --Plan--> interception.Plan                            (ambient.Numbers)
//	NodeRules --Plan, NetworkPlan, ProxyPlan--> interception.Plan
//	interception.ForeignChain --Recognise, RecogniseHost--> Recognised
//	                          --RecogniseNode--> RecognisedNode
//
// Istio 1.21 and later writes [PodRules] in the pods. [Recognise] looks for them in a pod, and
// [RecogniseHost] for the rules that the same agents write on the host. Istio 1.18 to 1.20 writes
// [NodeRules], which capture on the node, and [NodeState], the file that tells its plugin that the
// proxy is ready.
//
// A node's agent that takes over such a node applies its own plans (package ambient), and removes
// what was recognised without a difference. The plans of this package are for comparisons and
// traces.
package upstream
