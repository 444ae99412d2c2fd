// SPDX-License-Identifier: Apache-2.0

package ambientplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception/plugin"
	"github.com/meshcni/meshcni/interception/podsource"
)

// The codes of ambient mode. The README of examples/istio-cni lists them. They don't change.
const (
	codeNoAgent   uint = 200
	codeUndecided uint = 201
	codeNoAnswer  uint = 202
	codeSocket    uint = 203

	codeUnfinished uint = 210
	codeUnknownPod uint = 211
	codeRefused    uint = 212
	codeStopped    uint = 213
	codeProtocol   uint = 214
	codeMachine    uint = 215

	codeDrift uint = 220
)

// settingFailure is about enablement_selectors.
func settingFailure(err error) error {
	return &plugin.Error{
		Code: types.ErrInvalidNetworkConfig, Step: "read configuration", Err: fmt.Errorf("enablement_selectors: %w", err),
		Remedy: "correct the selectors in the plugin's entry of the node's CNI configuration, or let the node agent write it anew",
	}
}

// undecided is the failure of a pod that neither the agent nor the API server decides about.
func (a *addition) undecided(away, err error) error {
	remedy := a.agentRemedy(away)
	if source, is := errors.AsType[*podsource.Error](err); is {
		remedy += "; " + source.Remedy()
		err = problem{source}
	}
	return &plugin.Error{
		Code: codeUndecided, Step: "find out whether pod " + a.pod.String() + " is in the ambient mesh", Err: fmt.Errorf("%w; %w", away, err),
		Remedy: "one of these is enough: " + remedy,
	}
}

// problem is a source's error without its remedy.
type problem struct{ whole *podsource.Error }

func (p problem) Error() string { return p.whole.Problem() }

// Unwrap returns the whole error.
func (p problem) Unwrap() error { return p.whole }

// failure is why a pod of the mesh is not enrolled.
func (a *addition) failure(ctx context.Context, err error) error {
	f := &plugin.Error{Code: codeSocket, Step: "enrol pod " + a.pod.String() + " in the ambient mesh", Err: err, Remedy: a.agentRemedy(err)}
	switch code := codeOf(err); {
	case code == event.CodeUnfinished:
		f.Code = codeUnfinished
	case code == event.CodeUnknownPod:
		f.Code = codeUnknownPod
	case code == event.CodeRefused:
		f.Code = codeRefused
	case code == event.CodeVirtualMachine:
		f.Code = codeMachine
	case code == event.CodeStopped:
		f.Code = codeStopped
	case code != "":
		f.Code = codeProtocol
	case isUnanswered(err):
		f.Code = codeNoAgent
		f.Err = fmt.Errorf("the pod is in the ambient mesh, and its agent node-ambient is away: %w", err)
	case ctx.Err() != nil:
		f.Code = codeNoAnswer
	}
	return f
}

// agentRemedy says what the operator can do about an error of the agent or its socket.
func (a *addition) agentRemedy(err error) string {
	switch code := codeOf(err); {
	case code == event.CodeUnfinished:
		return "the container runtime tries again, and the agent goes on meanwhile: see whether the proxy (" + a.proxy() +
			") runs on this node, and the log of node-ambient"
	case code == event.CodeUnknownPod:
		return "nothing has to be done if the pod was deleted meanwhile; otherwise see whether node-watcher, which tells node-ambient of the pods, " +
			"runs on this node and reaches the API server"
	case code == event.CodeRefused:
		return "nothing has to be done if the pod was deleted or started again meanwhile; otherwise see the container runtime's log, " +
			"which passes the namespace as CNI_NETNS"
	case code == event.CodeVirtualMachine:
		return "give the pod a runtime class without a virtual machine, or a sidecar, or keep it out of the ambient mesh with the label " +
			"istio.io/dataplane-mode=none"
	case code == event.CodeStopped:
		return "the container runtime tries again: see whether install-cni starts node-ambient again on this node"
	case code != "":
		return "use versions of node-ambient and the plugin that fit together: install-cni installs its own plugin when it starts"
	case errors.Is(err, fs.ErrNotExist):
		return "have install-cni run on this node with ambient-enabled: it starts node-ambient, which serves " + a.socket
	case isUnanswered(err):
		return "see why node-ambient does not run on this node: install-cni starts it, and has its log"
	}
	if _, is := errors.AsType[*podsource.PeerError](err); is {
		return "check which user's program listens at " + a.socket + ": it has to be root's"
	}
	return "the container runtime tries again: see the log of node-ambient on this node"
}

// proxy names the proxy's DaemonSet.
func (a *addition) proxy() string {
	name := proxyName(a.request.Config)
	if namespace := proxyNamespace(a.request.Config); namespace != "" {
		name = namespace + "/" + name
	}
	return "DaemonSet " + name
}
