// SPDX-License-Identifier: Apache-2.0

// Package ambient decides which pods a proxy of the node serves, and makes the plan for the network
// namespace of each such pod:
//
//	Pod + Namespace --Enrolled(Policy)--> Decision
//	Pod --Vocabulary.Parse--> Overrides --PodPlan--> interception.Plan
//	                              (Numbers, interception.Facts)
//	Wanted, Seen --Next--> Steps
//
// In ambient mode no proxy runs in the pod. The rules in the pod's namespace redirect connections
// to listeners that the node's proxy (Istio's ztunnel) opens inside the namespace. The proxy marks
// its sockets, and by that mark the rules tell its traffic from the pod's:
//
//	        pod's network namespace
//	        +--------------------------------------------+
//	        |  application ---> :15001 proxy             |
//	eth0 ---+-> :15006 proxy ---> application            |
//	     ---+-> :15008 proxy (tunnel from other proxies) |
//	        |  DNS query -----> :15053 proxy             |
//	        +--------------------------------------------+
//
// The types:
//
//   - [Policy] is the operator's choice of pods. [Enrolled] applies it to a pod and its namespace.
//   - [Vocabulary] is a mesh's annotations as data. Its Parse method returns the pod's [Overrides].
//   - [Numbers] are the marks, ports, addresses and routing numbers that the proxy and the rules
//     agree on.
//
// [PodPlan] documents the order in which its rules decide. [HostPlan] lets the kubelet's probes
// reach the pods, also those of a [Branch]. [Next] is the life of a pod on the node as a state
// machine: from what is wanted and what was seen to the steps that a node's agent takes. The page
// docs/ambient-rules.md lists every rule with its condition.
//
// # Capture on the node
//
// Where no program may enter the pods' namespaces, or the proxy cannot, the node's own namespace
// captures the pods instead, by their addresses ([MeshedSet]):
//
//	NodeProxy --NodePlan--> plan for the node's namespace   (NodeNumbers, interception.Facts)
//	          --ProxyPlan-> plan for the namespace of the proxy's pod
//	ProxySwitch --Rollout--> both plans, in the order in which they are applied and undone
//
// [NodePlan] documents what is captured. Package collision tells which of the [NodeNumbers]
// something else on the node uses. Istio 1.18 to 1.20 captured in this way: package upstream
// recognises their rules, and has the file by which a node's agent tells the plugin of the proxy.
//
// # Non-goals
//
// This package is pure: it imports package interception and the standard library only. It knows
// neither Kubernetes' types nor the proxy's protocol. Waypoint proxies need no redirection and have
// no place here: their pods opt out by a label, as other gateways do. A proxy of its own for each
// pod (ztunnel's dedicated mode) and Windows are not planned for.
package ambient
