// SPDX-License-Identifier: Apache-2.0

// Package nodemode keeps the pods of a node in ambient mode where the node's own namespace captures
// them ([ambient.NodePlan]). It enters no pod's namespace but the proxy's, and needs no help from
// the proxy: package [github.com/meshcni/meshcni/ambient/agent] is for the capture in the pods'
// namespaces.
//
//	Feed ----------> pods ----ambient.Enrolled--> what is wanted of each pod ---+
//	Agent.Enrol ---> addresses, from the plugin                                 +-- ambient.Next
//	kernel ---look-> members of the sets, the proxy's listeners, the mark ------+
//	                                                                  steps --> sets, status
//	Feed ----------> the proxy's pod --> NodePlan on the host, ProxyPlan in the proxy's namespace
//
// A pod is captured while its addresses are in the host's sets, each with the pod's UID. To enrol
// or to withdraw one is one edit of the set of each family.
//
// Whether the kernel then marks the pod's connections, the agent sees by a packet that it sends
// through the host's rules. Where rules of other programs take the mark away, the pod is not
// enabled, and has an error that wraps [ErrMark]. No program gets the packet.
//
// # The proxy
//
// The proxy is the newest of the proxies' pods that are ready ([ambient.Policy.IsProxy]), whose
// namespace was found and verified by its UID and address, and in which the proxy listens. A proxy
// that is there serves until another one is ready, even if it is not ready any more. When a new one
// takes its place, the new one's interfaces, addresses and routes come first, and then the mark
// changes that new connections get. Where the new one cannot have them, the former one serves on,
// and the agent tries again for as long as the new one's pod is there. The former one keeps its
// interfaces and connections until its pod is gone, or a third proxy comes. Once the proxy's pod is
// gone and no other one is ready, no proxy gets new connections: those of enrolled pods are
// refused, and those of others are as before. A former proxy keeps what it has then, too.
//
// The proxy serves the families that its pod has addresses of and that it listens for. Captured
// connections of the other family are refused if the proxy's pod has no address of it, and lost if
// the proxy only does not listen. Each pod with an address of it has an error that wraps
// [ErrFamily].
//
// # Restart
//
// The kernel's sets say which pods are enrolled, and a file (Options.State) says which proxies have
// interfaces. The file is written before the kernel is changed, so that an agent that was killed at
// any instant is followed by one that goes on. Until the feed is complete, the proxy stays the one
// of the file, and no member is removed; one that another program removes is put back.
//
// If the namespace of the file's proxy cannot be found for some seconds, the agent goes on without
// it: what stands is left alone, and the next proxy takes its place, which ends what the former one
// carries. If rules have to be written before, they refuse the pods' connections until then.
//
// # Connections
//
// A pod that is enrolled or withdrawn while it runs keeps its connections, and new ones go the new
// way. Those that a proxy carries go on when another one takes its place, as long as its pod lasts.
//
// # Istio 1.18 to 1.20
//
// Where the agent of one of these releases captures on the node when this agent starts
// (Options.TakeOver), both capture for some time: new connections follow this agent's plan, and
// existing ones go on through the former tunnels. Once no pod has such a connection, this agent
// removes what the former one has on the host. What is in the former proxy's namespace ends with
// that pod. The former agent's settings of rp_filter stay, as their earlier values are unknown.
//
// To go back, start the former agent while this one runs, and then withdraw all pods: rules that
// appear after this agent's start are left alone. The former agent's rules divert packets of
// existing connections, too: those with packets under way when it starts may be reset, until this
// agent has seen the rules.
//
// # Change of the form of capture
//
// The pods of a node move from one form of capture to the other while the agents of both run. The
// agent of the former form retires (Options.Retiring), and the agent of the new form waits for each
// pod's turn (Options.Held). When the new agent has captured a pod, the caller withdraws it from
// the former one. Meanwhile the plan does not touch the tunnels of a proxy in the pods
// (Options.InPod).
//
// # Non-goals
//
// The agent does not decide which pod moves next. It does not take over what Istio 1.18 to 1.20 has
// written in its eBPF mode.
package nodemode
