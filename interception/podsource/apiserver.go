// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// The defaults of [APIServer].
const (
	defaultTimeout     = 30 * time.Second
	defaultCallTimeout = 5 * time.Second
	firstPause         = 100 * time.Millisecond
	longestPause       = 3 * time.Second
)

// How often a request is made at most, by what the last answers were. Without a failure of its own each waits less than a second,
// the longest about 15.
const (
	attemptsWhenDown    = 10 // unreachable, too slow, overloaded: API servers are restarted
	attemptsWhenUnknown = 4  // not found, another UID, 401: caches and renewed tokens catch up soon, or never
)

// APIServer asks the Kubernetes API server for pods, as a kubeconfig file says. Every call of Pod stands alone: connections are not
// kept, and the file is read each time.
//
// The file is what the node agent writes, in YAML (block style) or JSON, of at most 1 MiB. Of the current context these keys are
// understood: of the cluster server, certificate-authority-data, certificate-authority, insecure-skip-tls-verify,
// tls-server-name and proxy-url; of the user token, tokenFile, client-certificate-data, client-certificate, client-key-data and
// client-key. Keys that would say how to log in otherwise (exec, auth-provider, username ...) are refused, others are ignored. To
// a server of plain http no credential is sent, as client-go does it.
type APIServer struct {
	// Kubeconfig is the path of the kubeconfig file.
	Kubeconfig string
	// Timeout is how long a call of Pod takes at most, retries and pauses included; 30 s when 0.
	Timeout time.Duration
	// CallTimeout is how long each single request takes at most; 5 s when 0.
	CallTimeout time.Duration
	// Backoff says how long to wait after the given number of failures, the first being 1. When nil, pauses start at 100 ms, double
	// up to 3 s, and vary by a fifth so that the pods of a node don't ask all at once.
	Backoff func(failures int) time.Duration
}

// Pod returns the pod that ref names. The error is an [*Error].
//
// What may pass by itself is tried again: up to 10 times while the server can't be reached, is too slow (a request beyond
// CallTimeout), or answers 429 or 5xx; up to 4 times when it knows no such pod, knows one with another UID, or answers 401: then the
// file is read again each time, as its token may just have been renewed. All else, 403 among it, fails at once. A Timeout or a context
// that ends during a pause gives the last failure, and during a request an [ErrTimeout].
func (s APIServer) Pod(ctx context.Context, ref Ref) (interception.Pod, error) {
	if err := ref.validate(); err != nil {
		return interception.Pod{}, &Error{Kind: ErrRef, Pod: ref, Kubeconfig: s.Kubeconfig, Cause: err}
	}
	ctx, cancel := withTimeout(ctx, orDefault(s.Timeout, defaultTimeout), "in all")
	defer cancel()
	q := query{source: s, ref: ref}
	defer q.close()
	pod, failure := q.run(ctx)
	if failure != nil {
		failure.Pod, failure.Kubeconfig, failure.Attempts = ref, s.Kubeconfig, q.attempts
		return interception.Pod{}, failure
	}
	return pod, nil
}

// query is one call of Pod.
type query struct {
	source   APIServer
	ref      Ref
	client   *client // nil until the kubeconfig has been read
	attempts int
}

// run asks until there is an answer, or a failure that no patience helps against.
func (q *query) run(ctx context.Context) (interception.Pod, *Error) {
	var last error
	for alike := 1; ; alike++ {
		pod, failure := q.try(ctx)
		if failure == nil {
			return pod, nil
		}
		if !errors.Is(failure.Kind, last) {
			last, alike = failure.Kind, 1
		}
		if alike >= patience(failure.Kind) || q.attempts >= attemptsWhenDown || !pause(ctx, q.source.backoff(q.attempts)) {
			return interception.Pod{}, failure
		}
		if errors.Is(failure.Kind, ErrUnauthorized) {
			q.close()
		}
	}
}

func (q *query) try(ctx context.Context) (interception.Pod, *Error) {
	if q.client == nil {
		connection, err := readKubeconfig(q.source.Kubeconfig)
		if err != nil {
			return interception.Pod{}, &Error{Kind: ErrKubeconfig, Cause: err}
		}
		q.client = newClient(connection)
	}
	ctx, cancel := withTimeout(ctx, orDefault(q.source.CallTimeout, defaultCallTimeout), "for one request")
	defer cancel()
	q.attempts++
	pod, failure := q.client.pod(ctx, q.ref)
	if failure != nil {
		failure.Server = q.client.server()
	}
	return pod, failure
}

// close forgets the client, so that the next try reads the kubeconfig.
func (q *query) close() {
	if q.client != nil {
		q.client.close()
		q.client = nil
	}
}

// patience is how often in a row a request may fail that way.
func patience(kind error) int {
	switch {
	case isAny(kind, ErrUnreachable, ErrTimeout, ErrServer):
		return attemptsWhenDown
	case isAny(kind, ErrNotFound, ErrStalePod, ErrUnauthorized):
		return attemptsWhenUnknown
	default:
		return 1
	}
}

func (s APIServer) backoff(failures int) time.Duration {
	if s.Backoff != nil {
		return s.Backoff(failures)
	}
	d := min(firstPause<<min(failures-1, 10), longestPause)
	return d*4/5 + rand.N(d*2/5)
}

// pause waits, and reports whether it was allowed to wait to the end.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// withTimeout makes the end of the time say which time it was.
func withTimeout(ctx context.Context, d time.Duration, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%v %s are over: %w", d, what, context.DeadlineExceeded))
}

func orDefault(d, standard time.Duration) time.Duration {
	if d == 0 {
		return standard
	}
	return d
}
