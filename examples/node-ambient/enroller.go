// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"

	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/ambient/agent/nodemode"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// podAgent enrols the pods that the plugin hands over, and gives up those that end.
type podAgent interface {
	Enrol(ctx context.Context, pod podnetns.Pod, namespace *os.File) (interception.Decision, error)
	Leave(ctx context.Context, pod podnetns.Pod, namespace *os.File) (held bool, err error)
}

// enroller gives the plugin's requests to the agent.
type enroller struct{ agent podAgent }

// Enrol implements [event.Enroller].
func (e enroller) Enrol(ctx context.Context, pod event.Pod, namespace *os.File) (interception.Decision, error) {
	decision, err := e.agent.Enrol(ctx, podOf(pod), namespace)
	if err != nil {
		return decision, &event.Error{Code: codeIn(ctx, err), Message: err.Error()}
	}
	return decision, nil
}

// codeIn is codeOf for a request with this context. If that was cancelled before the request's time
// was over, this process ends or hands over: the plugin has to ask the next one.
func codeIn(ctx context.Context, err error) event.Code {
	code := codeOf(err)
	waited := code == event.CodeUnfinished || code == event.CodeUnknownPod
	if waited && errors.Is(ctx.Err(), context.Canceled) {
		return event.CodeStopped
	}
	return code
}

// Leave implements [event.Leaver].
func (e enroller) Leave(ctx context.Context, pod event.Pod, namespace *os.File) (held bool, err error) {
	if held, err = e.agent.Leave(ctx, podOf(pod), namespace); err != nil {
		return false, &event.Error{Code: codeOf(err), Message: err.Error()}
	}
	return held, nil
}

// podOf returns a pod as the agent knows it. Its container is the sandbox.
func podOf(pod event.Pod) podnetns.Pod {
	of := podnetns.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, IPs: pod.Addresses}
	if pod.Container != "" {
		of.Containers = []string{pod.Container}
	}
	return of
}

func codeOf(err error) event.Code {
	_, refused := errors.AsType[*podnetns.RefusalError](err)
	switch {
	case refused, errors.Is(err, agent.ErrReplaced), errors.Is(err, agent.ErrEnded), errors.Is(err, nodemode.ErrAddress),
		errors.Is(err, nodemode.ErrFamily), errors.Is(err, interception.ErrHostNetns), errors.Is(err, interception.ErrNotNetns):
		return event.CodeRefused
	case errors.Is(err, agent.ErrVirtualMachine):
		return event.CodeVirtualMachine
	case errors.Is(err, agent.ErrUnknownPod):
		return event.CodeUnknownPod
	case errors.Is(err, agent.ErrStopped):
		return event.CodeStopped
	}
	return event.CodeUnfinished
}
