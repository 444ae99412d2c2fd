// SPDX-License-Identifier: Apache-2.0

// Package event carries a new pod's network namespace from the CNI plugin to the node's agent of
// ambient mode, and the agent's decision back. The plugin also tells when the pod's sandbox ends.
// Operators' programs ask the agent at the same socket.
//
//	plugin: Enrol --- POST /v1/enrol, with the open namespace ---> Server --> Enroller (the agent)
//	plugin: Leave --- POST /v1/leave, likewise ------------------> Server --> Leaver (the agent)
//	Istio's plugin -- POST /cmdadd, with the namespace's path ---> Server --> Enroller
//	operator: Pods -- GET /v1/pods ------------------------------> Server --> Keeper (the agent)
//	          Withdraw -- POST /v1/withdraw ---------------------> Server --> Keeper
//	          Readmit --- POST /v1/readmit ----------------------> Server --> Keeper
//	a newer agent: HandOver -- POST /v1/handover ----------------> Server (it ends)
//
// It is HTTP/1.1 with JSON, one request for each connection, on a stream socket that only root and
// the server's own user may use.
//
// # /v1/enrol
//
// The request carries the descriptor of the open namespace as ancillary data (SCM_RIGHTS, unix(7))
// with its first bytes: no path has to mean the same on both sides. The body names the pod and its
// addresses, and says how long the plugin waits:
//
//	{"namespace":"shop","name":"web-0","uid":"7f0b","container":"3e1c","addresses":["10.244.1.6"],"timeout":"4.5s"}
//
// The uid is that of the container runtime, which is another one than the API server's for a static
// pod. The container is the id of the pod's sandbox.
//
// The answer is the decision ([Answer]), as soon as the pod is as wanted:
//
//	{"capture":true,"reason":"namespace-label"}
//
// or an error, with one of the codes of [Code]:
//
//	{"error":{"code":"unfinished","message":"enrol pod shop/web-0: ..."}}
//
// The server answers before the plugin's time is over, so that the error says what is waited for.
// Fields that are not known are ignored. A later version has another path.
//
// # /v1/leave
//
// The container runtime ends a sandbox. The request is that of /v1/enrol, with the descriptor of
// the sandbox's namespace as long as that can be opened. The agent gives the sandbox up if it is
// the one that it holds: it has the same namespace or, without a descriptor, the same container. A
// request about an older sandbox of the same pod changes nothing. Nor does one that names addresses
// of which the pod has none: it is about another of the pod's networks.
//
// The answer comes when none of the sandbox's addresses is in the host's sets any more, and says
// whether the agent held the sandbox. The rest follows without the caller:
//
//	{"held":true}
//
// or it is an error like those of /v1/enrol. The plugin's DEL succeeds with any answer, and without
// one: the agent also learns of the pod's end from its feed.
//
// # /cmdadd
//
// Istio's plugin sends the path of the namespace and no UID (cni/pkg/plugin of istio.io/istio). The
// status is 200 when the pod is captured; else the plugin fails, and gets the error as text.
//
// # /v1/pods
//
// The answer is what the agent knows of its node ([Node]). With the query uid=, or namespace= and
// name=, it has the pods that match, or an empty list.
//
// # /v1/withdraw
//
// The body says which pods to take out of the mesh, and how long the caller waits (a minute if it
// does not say):
//
//	{"all":true,"timeout":"60s"}
//	{"namespace":"shop","name":"web-0"}    or {"uid":"7f0b"}
//
// The answer has a line of JSON for each pod as soon as it is out, and a last one:
//
//	{"out":{"uid":"7f0b","namespace":"shop","name":"web-0",...}}
//	{"done":true}
//
// If the time is over, or the agent fails, a line for each pod that is still in the mesh comes
// before the error:
//
//	{"left":{"uid":"7f0b","step":"await-drained",...}}
//	{"error":{"code":"unfinished","message":"..."}}
//
// The status is 200 in both cases, as it is sent with the first line. The agent goes on with the
// pods that are left, also when the caller has gone. It keeps pods out until POST /v1/readmit,
// which has no body and ends all withdrawals, or until it ends itself.
//
// # /v1/handover
//
// Of two agents on a node, as there are during a rolling update, the newer one asks the older one
// to end its work. The body says when it was started, since the boot of the node:
//
//	{"started":"3h10m4.2s"}
//
// The answer is {"done":true}, or an error with the code "refused" if the other one is newer.
//
// # Non-goals
//
// The server decides nothing about a pod, and does not verify that the namespace is the pod's: an
// [Enroller] does both.
package event
