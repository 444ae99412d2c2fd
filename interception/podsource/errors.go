// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// What an [*Error] is about, to be told apart with errors.Is.
var (
	// ErrRef means that the pod is not named in a form that a pod's name can have. Nobody was asked.
	ErrRef = errors.New("not a pod's name")
	// ErrKubeconfig means that the kubeconfig is missing (then the error also is fs.ErrNotExist), unreadable, or not understood.
	// Nobody was asked.
	ErrKubeconfig = errors.New("kubeconfig cannot be used")
	// ErrUnreachable means that no connection could be made, or that it broke.
	ErrUnreachable = errors.New("API server cannot be reached")
	// ErrUntrusted means that the server's certificate isn't signed by the CA of the kubeconfig, or is for another name or time.
	ErrUntrusted = errors.New("API server's certificate is not trusted")
	// ErrTimeout means that the answer did not come in time.
	ErrTimeout = errors.New("API server did not answer in time")
	// ErrUnauthorized means status 401: the credential is expired, revoked or of another cluster.
	ErrUnauthorized = errors.New("API server does not accept the credential")
	// ErrForbidden means status 403: the credential is good, and may not get pods.
	ErrForbidden = errors.New("API server forbids to read the pod")
	// ErrNotFound means status 404: there is no such pod.
	ErrNotFound = errors.New("API server knows no such pod")
	// ErrServer means status 429 or 5xx: the server is overloaded or broken.
	ErrServer = errors.New("API server failed")
	// ErrAnswer means that what came is not an answer of a Kubernetes API server: another status, or no JSON.
	ErrAnswer = errors.New("answer is not understood")
	// ErrNotPod means that the answer is JSON, and not the Pod that was asked for.
	ErrNotPod = errors.New("answer is not the pod")
	// ErrTooLarge means that the answer is larger than any Pod can be.
	ErrTooLarge = errors.New("answer is too large")
	// ErrStalePod means that there is a pod of that name, with another UID.
	ErrStalePod = errors.New("API server knows another pod of that name")
)

// Error says why a source has nothing to tell about a pod.
type Error struct {
	// Kind is one of the errors above.
	Kind error
	// Pod is the pod that was asked for.
	Pod Ref
	// Kubeconfig is the path of the file that said whom to ask.
	Kubeconfig string
	// Server is the URL of the server; empty when nobody was asked.
	Server string
	// Cause is what was found, or answered; nil when Kind says it all. It holds no credential.
	Cause error
	// Attempts says how often the server was asked.
	Attempts int
}

// Error is the problem and the remedy.
func (e *Error) Error() string { return e.Problem() + "; " + e.Remedy() }

// Unwrap gives Kind and Cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// Problem says what was asked and what came back, in one line.
func (e *Error) Problem() string {
	text := fmt.Sprintf("pod %s: %v", e.Pod, e.Kind)
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

// Remedy says what the operator can do, in one sentence that starts small.
func (e *Error) Remedy() string {
	switch {
	case isAny(e.Kind, ErrRef):
		return "this is what the container runtime passed in CNI_ARGS: see its log"
	case isAny(e.Kind, ErrKubeconfig) && errors.Is(e.Cause, fs.ErrNotExist):
		return "the node agent writes it: see whether its pod runs on this node and installs into this directory"
	case isAny(e.Kind, ErrKubeconfig):
		return "the node agent writes it: let it write the file anew, or correct it by hand"
	case isAny(e.Kind, ErrUnreachable):
		return "see whether the server in " + e.Kubeconfig + " is right and can be reached from this node"
	case isAny(e.Kind, ErrUntrusted):
		return "see whether the CA and the server in " + e.Kubeconfig + " are of one cluster, and the node's clock is right"
	case isAny(e.Kind, ErrTimeout, ErrServer):
		return "see how the API server is doing; the pod is tried again by the kubelet"
	case isAny(e.Kind, ErrUnauthorized):
		return "see whether the node agent runs and renews the token in " + e.Kubeconfig
	case isAny(e.Kind, ErrForbidden):
		return "give the service account of " + e.Kubeconfig + " a role with the verb get on pods"
	case isAny(e.Kind, ErrNotFound, ErrStalePod):
		return "nothing has to be done if the pod was deleted meanwhile; otherwise see whether " + e.Kubeconfig + " is of this node's cluster"
	default: // ErrAnswer, ErrNotPod, ErrTooLarge
		return "see whether the server in " + e.Kubeconfig + " is an API server, and nothing between it and this node answers in its place"
	}
}

func isAny(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}
