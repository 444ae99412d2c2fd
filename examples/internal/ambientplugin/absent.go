// SPDX-License-Identifier: Apache-2.0

package ambientplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

// rounds is how an agent is asked again that may answer soon: so often, after this pause each time.
type rounds struct {
	most  int
	pause time.Duration
}

// handOver is for an agent that hands over to a newer one, as in every update. It takes a fraction
// of a second, in which the API server need not be asked.
func handOver() rounds { return rounds{20, 50 * time.Millisecond} }

// replacement is for an agent that is started again, or whose successor starts later.
func replacement() rounds { return rounds{8, time.Second} }

// decideAlone decides while the agent is away, or has not heard of the pod. A pod that may be one
// of the mesh waits for an agent that is being replaced, and otherwise fails. Other pods go on.
func (a *addition) decideAlone(ctx context.Context, away error) (_ interception.Decision, decided bool, _ error) {
	decision, unknown := a.askServer(ctx)
	if unknown == nil && !decision.Capture {
		a.request.Log.Info("pod is not in the ambient mesh, as the API server says: its agent is away",
			"reason", decision.String(), "agent", away.Error())
		return interception.Decision{}, false, nil
	}
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if unknown != nil {
		waiting, cancel = half(ctx)
	}
	defer cancel()
	decision, away = a.askAgain(waiting, away, replacement())
	switch {
	case !isUnanswered(away):
		return a.outcome(waiting, decision, away)
	case unknown == nil:
		return interception.Decision{}, false, a.failure(ctx, away)
	case ctx.Err() == nil && a.request.Config.FailPolicy.Opens(a.pod.Namespace):
		a.request.Log.Warn("pod may be in the ambient mesh, and is not enrolled: neither its agent nor the API server tells, and fail_policy is open",
			"agent", away.Error(), "error", unknown.Error())
		return interception.Decision{}, false, nil
	}
	return interception.Decision{}, false, a.undecided(away, unknown)
}

// askAgain asks an agent again that is being replaced, and that has failed to answer with an error.
// It returns the last answer.
func (a *addition) askAgain(ctx context.Context, away error, r rounds) (decision interception.Decision, _ error) {
	for round := 1; round <= r.most && isReplaced(away) && a.pause(ctx, round, r.pause); round++ {
		decision, away = event.Enrol(ctx, a.socket, a.pod, a.namespace)
	}
	return decision, away
}

// askServer decides by what the API server says of the pod and its namespace. It takes half of the
// time that is left, because the plugin may need the other half to find a sidecar.
func (a *addition) askServer(ctx context.Context) (interception.Decision, error) {
	ctx, cancel := half(ctx)
	defer cancel()
	server := podsource.APIServer{Kubeconfig: a.request.Config.Kubeconfig, UserAgent: a.UserAgent, Backoff: a.Backoff}
	pod, err := server.Pod(ctx, a.request.Pod)
	if err != nil {
		return interception.Decision{}, err
	}
	labels, err := server.NamespaceLabels(ctx, pod.Namespace)
	if err != nil {
		return interception.Decision{}, err
	}
	return ambient.Enrolled(ambient.Pod{Pod: pod}, ambient.Namespace{Name: pod.Namespace, Labels: labels}, a.policy), nil
}

// half returns a context that ends after half of the time that is left.
func half(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, is := ctx.Deadline()
	if !is {
		return ctx, func() {}
	}
	limit := time.Until(deadline) / 2
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v: %w", limit.Round(time.Millisecond), context.DeadlineExceeded))
}

// isUnanswered reports whether no agent has decided about the pod.
func isUnanswered(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || isReplaced(err) || codeOf(err) == event.CodeUnknownPod
}

// isReplaced reports whether the agent may answer soon: its socket is there, but no program
// listens, the program ends, or too many connections wait.
func isReplaced(err error) bool {
	for _, passing := range []error{syscall.ECONNREFUSED, syscall.EAGAIN, io.ErrUnexpectedEOF} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return codeOf(err) == event.CodeStopped
}

// codeOf returns the code of an error that the agent has reported, or "".
func codeOf(err error) event.Code {
	if reported, is := errors.AsType[*event.Error](err); is {
		return reported.Code
	}
	return ""
}

// pause waits before another round, and reports whether there is time for one.
func (a *addition) pause(ctx context.Context, round int, pause time.Duration) bool {
	if a.Backoff != nil {
		pause = a.Backoff(round)
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return ctx.Err() == nil
	}
}
