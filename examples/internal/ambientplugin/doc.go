// SPDX-License-Identifier: Apache-2.0

// Package ambientplugin is ambient mode in the CNI plugin: [Hook.Before] and [Hook.Deleted] are for
// Before and Deleted of [plugin.Options].
//
//	plugin --Before--> Hook --/v1/enrol, with the namespace--> the node's agent (node-ambient)
//	                    |
//	                    +--if the agent is away--> API server: pod and namespace
//	plugin --Deleted--> Hook --/v1/leave, likewise--> the node's agent
//
// The agent decides about a pod, enrols it and answers once the proxy serves it. For a pod that the
// agent does not capture, the plugin goes on with its search for a sidecar.
//
// Goals: a pod of the ambient mesh never starts outside of it in silence, and the error says for
// whom the pod waits. A pod that is certainly not in the mesh costs no connection: the proxy's own,
// and one whose annotations, if the runtime passes them, tell of a sidecar. Any other pod costs one
// request to the agent. The API server is asked only while the agent is away.
//
// While one agent hands over to another, as in every update, the plugin asks again for a second
// before it asks the API server, and then for eight more unless the pod is not in the mesh.
//
// DEL tells the agent that the sandbox ends, so that its addresses leave the host's sets before
// another pod has them. It waits a second at most, and succeeds whatever the agent does.
//
// Non-goals: rules, the proxy's protocol, and the end of a pod, of which the agent hears from its
// feed. CHECK asks the agent what it observes, and reads no rules itself.
package ambientplugin
