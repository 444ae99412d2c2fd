// SPDX-License-Identifier: Apache-2.0

// Package upstream knows the rules that Istio's own node agents write for ambient mode, as plans,
// and recognises them among the rules of other programs:
//
//	PodRules --Plan--> interception.Plan                            (ambient.Numbers)
//	NodeRules --Plan, NetworkPlan, ProxyPlan--> interception.Plan
//	interception.ForeignChain --Recognise, RecogniseHost--> Recognised
//	                          --RecogniseNode--> RecognisedNode
//
// [PodRules] are the rules in the pods, by Istio 1.21 and later. [Recognise] looks for them in a
// pod, and [RecogniseHost] for those that the same agents write on the host. [NodeRules] are those
// of Istio 1.18 to 1.20, which capture on the node. [NodeState] is the file by which that agent
// tells its plugin that the proxy is ready.
//
// A node's agent that takes over such a node applies its own plans (package ambient), and removes
// what was recognised without a difference. The plans of this package are for comparisons and
// traces.
package upstream
