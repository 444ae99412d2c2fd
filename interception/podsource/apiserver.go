// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// The defaults of [APIServer].
const (
	defaultTimeout     = 30 * time.Second
	defaultCallTimeout = 5 * time.Second
)

// APIServer asks the Kubernetes API server for pods, as a kubeconfig file says. Each call of Pod
// reads the file, and keeps no connection.
//
// The file is what the node agent writes, in YAML (block style) or JSON, of at most 1 MiB. Of the
// current context these keys are understood: of the cluster server, certificate-authority-data,
// certificate-authority, insecure-skip-tls-verify, tls-server-name and proxy-url (http or https);
// of the user token, tokenFile, client-certificate-data, client-certificate, client-key-data and
// client-key. Keys for other ways to log in (exec, auth-provider, username ...) are refused; any
// other key is ignored. Like client-go, APIServer sends no credential to a server of plain http.
type APIServer struct {
	// Kubeconfig is the path of the kubeconfig file. It, and each file that it refers to, must be a
	// regular file that belongs to root or to this process's user, and that no other user may write.
	Kubeconfig string
	// UserAgent names the program to the API server, which has it in its audit log; "meshcni" when
	// empty.
	UserAgent string
	// Timeout is how long a call of Pod takes at most, retries and pauses included; 30 s when 0.
	Timeout time.Duration
	// CallTimeout is how long each single request takes at most; 5 s when 0.
	CallTimeout time.Duration
	// Backoff says how long to wait after the given number of failures, the first being 1. When nil,
	// pauses start at 100 ms, double up to 3 s, and vary by a fifth so that the pods of a node don't
	// ask all at once.
	Backoff func(failures int) time.Duration
}

// Pod returns the pod that ref names. The error is an [*Error].
//
// Pod asks again after a failure that may pass by itself. It asks up to 10 times while the server
// can't be reached, is too slow (a request beyond CallTimeout), or answers 429 or 5xx; up to 4
// times when the server knows no such pod, knows one with another UID, or answers 401. After a 401
// it reads the file again, because the token may just have been renewed. Any other failure, such as
// 403, is returned at once. If Timeout or the context ends during a pause, the error is the last
// failure; if it ends during a request, the error is [ErrTimeout].
func (s APIServer) Pod(ctx context.Context, ref Ref) (pod interception.Pod, err error) {
	if err := ref.Validate(); err != nil {
		return pod, &Error{Kind: ErrRef, Source: sourceAPIServer, Pod: ref, Kubeconfig: s.Kubeconfig, Cause: err}
	}
	failure := s.ask(ctx, func(ctx context.Context, c *client) (failure *Error) {
		pod, failure = c.pod(ctx, ref)
		return failure
	})
	if failure != nil {
		failure.Pod = ref
		return interception.Pod{}, failure
	}
	return pod, nil
}

// NamespaceLabels returns the labels of a namespace, for a mesh that selects pods by them. It asks
// again as Pod does, where [ErrNoNamespace] counts as a missing pod. The error is an [*Error].
func (s APIServer) NamespaceLabels(ctx context.Context, namespace string) (labels map[string]string, err error) {
	if err := validateName("namespace", namespace); err != nil {
		return nil, &Error{Kind: ErrRef, Source: sourceAPIServer, Namespace: namespace, Kubeconfig: s.Kubeconfig, Cause: err}
	}
	failure := s.ask(ctx, func(ctx context.Context, c *client) (failure *Error) {
		labels, failure = c.namespaceLabels(ctx, namespace)
		return failure
	})
	if failure != nil {
		failure.Namespace = namespace
		return nil, failure
	}
	return labels, nil
}

// ask makes a request, again as often as its failures deserve.
func (s APIServer) ask(ctx context.Context, request func(context.Context, *client) *Error) *Error {
	ctx, cancel := withTimeout(ctx, cmp.Or(s.Timeout, defaultTimeout), "in all")
	defer cancel()
	q := query{source: s, request: request}
	failure := retry{patienceWithAPIServer, s.Backoff}.run(ctx, q.try)
	if failure != nil {
		failure.Source, failure.Kubeconfig, failure.Attempts = sourceAPIServer, s.Kubeconfig, q.attempts
	}
	return failure
}

// query is one call of Pod or NamespaceLabels.
type query struct {
	source   APIServer
	request  func(context.Context, *client) *Error
	client   *client // nil until the kubeconfig has been read
	attempts int
}

func (q *query) try(ctx context.Context) *Error {
	if q.client == nil {
		connection, err := readKubeconfig(q.source.Kubeconfig)
		if err != nil {
			return &Error{Kind: ErrKubeconfig, Cause: err}
		}
		q.client = newClient(connection, cmp.Or(q.source.UserAgent, defaultUserAgent))
	}
	ctx, cancel := withTimeout(ctx, cmp.Or(q.source.CallTimeout, defaultCallTimeout), "for one request")
	defer cancel()
	q.attempts++
	failure := q.request(ctx, q.client)
	if failure != nil {
		failure.Server = q.client.server()
		if errors.Is(failure.Kind, ErrUnauthorized) {
			q.client = nil // the next try reads the kubeconfig again
		}
	}
	return failure
}

// patienceWithAPIServer is longest where waiting helps. All pauses together take less than a second
// while only a pod is missing or a token is refused, and at most about 15 seconds.
func patienceWithAPIServer(failure *Error) int {
	switch kind := failure.Kind; {
	case isAny(kind, ErrUnreachable, ErrTimeout, ErrServer):
		return mostAttempts // API servers are restarted
	case isAny(kind, ErrNotFound, ErrNoNamespace, ErrStalePod, ErrUnauthorized):
		return 4 // caches and renewed tokens catch up soon, or never
	default:
		return 1
	}
}

// probeName is the name of a pod that doesn't exist.
const probeName = "meshcni-probe"

// Probe asks once for a pod in namespace that need not be there. It returns nil if the API server
// accepts the credential, and would return a pod that is there. The error is an [*Error].
func (s APIServer) Probe(ctx context.Context, namespace string) error {
	ref := Ref{Namespace: namespace, Name: probeName}
	if err := ref.Validate(); err != nil {
		return &Error{Kind: ErrRef, Source: sourceAPIServer, Kubeconfig: s.Kubeconfig, Cause: err}
	}
	q := query{source: s, request: func(ctx context.Context, c *client) *Error {
		_, failure := c.pod(ctx, ref)
		return failure
	}}
	failure := q.try(ctx)
	if failure == nil || isAny(failure.Kind, ErrNotFound) {
		return nil
	}
	failure.Source, failure.Kubeconfig, failure.Attempts = sourceAPIServer, s.Kubeconfig, q.attempts
	return failure
}
