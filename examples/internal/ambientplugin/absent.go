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

// While the agent is replaced, a pod of the mesh asks it again this often, after this pause.
const (
	replacementRounds = 8
	replacementPause  = time.Second
)

// decideAlone decides while the agent is away, or has not heard of the pod. A pod of the mesh waits
// for an agent that is being replaced, and otherwise fails. Other pods go on.
func (a *addition) decideAlone(ctx context.Context, away error) (_ interception.Decision, decided bool, _ error) {
	decision, err := a.askServer(ctx)
	switch conf := a.request.Config; {
	case err != nil && ctx.Err() == nil && conf.FailPolicy.Opens(a.pod.Namespace):
		a.request.Log.Warn("pod may be in the ambient mesh, and is not enrolled: neither its agent nor the API server tells, and fail_policy is open",
			"agent", away.Error(), "error", err.Error())
		return interception.Decision{}, false, nil
	case err != nil:
		return interception.Decision{}, false, a.undecided(away, err)
	case !decision.Capture:
		a.request.Log.Info("pod is not in the ambient mesh, as the API server says: its agent is away",
			"reason", decision.String(), "agent", away.Error())
		return interception.Decision{}, false, nil
	}
	for round := 1; round <= replacementRounds && isReplaced(away) && a.pause(ctx, round); round++ {
		if decision, away = event.Enrol(ctx, a.socket, a.pod, a.namespace); !isUnanswered(away) {
			return a.outcome(ctx, decision, away)
		}
	}
	return interception.Decision{}, false, a.failure(ctx, away)
}

// askServer decides by what the API server says of the pod and its namespace. It takes half of the
// time that is left, because the plugin may need the other half to find a sidecar.
func (a *addition) askServer(ctx context.Context) (interception.Decision, error) {
	if deadline, is := ctx.Deadline(); is {
		limit := time.Until(deadline) / 2
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit,
			fmt.Errorf("no answer within %v: %w", limit.Round(time.Millisecond), context.DeadlineExceeded))
		defer cancel()
	}
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
func (a *addition) pause(ctx context.Context, round int) bool {
	pause := replacementPause
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
