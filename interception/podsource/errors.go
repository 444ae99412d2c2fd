// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// The sources by their names.
const (
	sourceAPIServer = "API server"
	sourceAgent     = "node agent"
)

// The kinds of [*Error], for errors.Is.
var (
	// ErrRef means that no pod can have such a name or namespace. No server was asked.
	ErrRef = errors.New("not a pod's name")
	// ErrKubeconfig means that the kubeconfig is missing (the error then is fs.ErrNotExist, too),
	// can't be read or understood, or names a server whose host no request can carry. No server was
	// asked.
	ErrKubeconfig = errors.New("kubeconfig cannot be used")
	// ErrUnreachable means that no connection could be made, or that it broke.
	ErrUnreachable = errors.New("cannot be reached")
	// ErrUntrusted means that the API server's certificate isn't signed by the CA of the kubeconfig,
	// or is for another name or time, or that the program that listens on the agent's socket is
	// another user's (a [*PeerError]).
	ErrUntrusted = errors.New("is not trusted")
	// ErrTimeout means that the answer did not come in time.
	ErrTimeout = errors.New("did not answer in time")
	// ErrUnauthorized means status 401: the credential is expired, revoked or of another cluster.
	ErrUnauthorized = errors.New("does not accept the credential")
	// ErrForbidden means status 403: the credential is valid, but may not get pods; or the agent
	// refuses this user.
	ErrForbidden = errors.New("forbids it")
	// ErrNotFound means status 404: there is no such pod.
	ErrNotFound = errors.New("knows no such pod")
	// ErrNoNamespace means status 404 for a namespace.
	ErrNoNamespace = errors.New("knows no such namespace")
	// ErrServer means status 429 or 5xx: the server is overloaded or broken.
	ErrServer = errors.New("failed")
	// ErrAnswer means that the answer is not one of such a server: it has another status, or is not
	// JSON.
	ErrAnswer = errors.New("gave an answer that is not understood")
	// ErrNotPod means that the answer is JSON, but not the Pod that was asked for.
	ErrNotPod = errors.New("gave an answer that is not the pod")
	// ErrTooLarge means that the answer is larger than any Pod can be.
	ErrTooLarge = errors.New("gave an answer that is too large")
	// ErrStalePod means that there is a pod of that name, but with another UID.
	ErrStalePod = errors.New("knows another pod of that name")
	// ErrNotReady means that the agent does not know the pods of its node yet. Asking again soon
	// doesn't help.
	ErrNotReady = errors.New("is not ready to answer yet")
	// ErrProtocol means that the agent doesn't offer this in a version of the protocol that this
	// package knows: the agent is older or newer.
	ErrProtocol = errors.New("speaks another version of the protocol")
	// ErrRequest means that the agent doesn't take the request: it is too large or malformed.
	ErrRequest = errors.New("does not take the request")
)

// Error says why a source returned no pod, or why the node agent did not take a request.
type Error struct {
	// Kind is one of the errors above. Most are worded to follow the source's name.
	Kind error
	// Source names the source for people: "API server" or "node agent".
	Source string
	// Pod is the pod that was asked for; zero if the request was about none.
	Pod Ref
	// Namespace is the namespace that was asked for; empty if the request was not about one.
	Namespace string
	// Kubeconfig is the path of the API server's kubeconfig; empty for other sources.
	Kubeconfig string
	// Server is the URL of the server, or "unix:" and the path of the socket; empty when no server was
	// asked.
	Server string
	// Cause is what was found, or answered; nil when Kind says it all. It holds no credential.
	Cause error
	// Attempts says how often the server was asked.
	Attempts int
}

// Error returns the problem and the remedy.
func (e *Error) Error() string { return e.Problem() + "; " + e.Remedy() }

// Unwrap returns Kind and Cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// Problem says what was asked and what came back, in one line.
func (e *Error) Problem() string {
	switch {
	case e.Namespace != "":
		return fmt.Sprintf("namespace %s: %s", e.Namespace, e.problem())
	case e.Pod == (Ref{}):
		return e.problem()
	}
	return fmt.Sprintf("pod %s: %s", e.Pod, e.problem())
}

// problem is Problem without the pod.
func (e *Error) problem() string {
	text := e.Kind.Error()
	if e.Source != "" && !isAny(e.Kind, ErrRef, ErrKubeconfig) {
		text = e.Source + " " + text
	}
	if e.Server != "" {
		text += " (" + e.Server + ")"
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	if e.Attempts > 1 {
		text += fmt.Sprintf(" (asked %d times)", e.Attempts)
	}
	return text
}

// Remedy says what the operator can do, in one sentence without a capital letter at its start.
func (e *Error) Remedy() string {
	switch {
	case isAny(e.Kind, ErrRef):
		return "this is what the container runtime passed in CNI_ARGS: see its log"
	case e.Source == sourceAgent:
		return e.agentRemedy()
	default:
		return e.apiServerRemedy()
	}
}

func (e *Error) agentRemedy() string {
	switch {
	case e.isMissing():
		return "see whether the node agent's pod runs on this node, and has its socket in this directory"
	case isAny(e.Kind, ErrUnreachable):
		return "see whether the node agent's pod runs on this node"
	case isAny(e.Kind, ErrUntrusted):
		return "check which user's program listens there: it has to be root's, or the user's that asks"
	case isAny(e.Kind, ErrForbidden):
		return "ask as root, or as the user that the node agent runs as"
	case isAny(e.Kind, ErrNotFound, ErrStalePod):
		return "nothing has to be done if the pod was deleted meanwhile; otherwise see whether the node agent reaches its API server"
	case isAny(e.Kind, ErrProtocol):
		return "use versions of the node agent and the plugin that fit together: the agent installs its own plugin when it starts"
	case isAny(e.Kind, ErrTimeout, ErrServer, ErrNotReady):
		return "see the node agent's log"
	default: // ErrAnswer, ErrNotPod, ErrTooLarge, ErrRequest
		return "see whether it is the node agent that listens there, and of which version"
	}
}

func (e *Error) apiServerRemedy() string {
	switch {
	case isAny(e.Kind, ErrKubeconfig) && errors.Is(e.Cause, fs.ErrNotExist):
		return "the node agent writes it: see whether its pod runs on this node and installs into this directory"
	case isAny(e.Kind, ErrKubeconfig):
		return "the node agent writes it: let it write the file anew, or correct it by hand"
	case isAny(e.Kind, ErrUnreachable):
		return "see whether the server in " + e.Kubeconfig + " is right and can be reached from this node"
	case isAny(e.Kind, ErrUntrusted):
		return "see whether the CA and the server in " + e.Kubeconfig + " are of one cluster, and the node's clock is right"
	case isAny(e.Kind, ErrTimeout, ErrServer):
		return "check the API server's health; the kubelet tries the pod again"
	case isAny(e.Kind, ErrUnauthorized):
		return "see whether the node agent runs and renews the token in " + e.Kubeconfig
	case isAny(e.Kind, ErrForbidden):
		return "give the service account of " + e.Kubeconfig + " a role with the verb get on " + e.resource()
	case isAny(e.Kind, ErrNotFound, ErrNoNamespace, ErrStalePod):
		return "nothing has to be done if the pod was deleted meanwhile; otherwise see whether " + e.Kubeconfig + " is of this node's cluster"
	default: // ErrAnswer, ErrNotPod, ErrTooLarge
		return "see whether the server in " + e.Kubeconfig + " is an API server, and nothing between it and this node answers in its place"
	}
}

// resource is what the API server was asked for.
func (e *Error) resource() string {
	if e.Namespace != "" {
		return "namespaces"
	}
	return "pods"
}

func isAny(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}
