// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"

	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// enroller gives the plugin's requests to the agent.
type enroller struct{ agent *agent.Agent }

// Enrol implements [event.Enroller].
func (e enroller) Enrol(ctx context.Context, pod event.Pod, namespace *os.File) (interception.Decision, error) {
	decision, err := e.agent.Enrol(ctx, podnetns.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, IPs: pod.Addresses}, namespace)
	if err != nil {
		return decision, &event.Error{Code: codeOf(err), Message: err.Error()}
	}
	return decision, nil
}

func codeOf(err error) event.Code {
	_, refused := errors.AsType[*podnetns.RefusalError](err)
	switch {
	case refused, errors.Is(err, agent.ErrReplaced), errors.Is(err, interception.ErrHostNetns), errors.Is(err, interception.ErrNotNetns):
		return event.CodeRefused
	case errors.Is(err, agent.ErrUnknownPod):
		return event.CodeUnknownPod
	case errors.Is(err, agent.ErrStopped):
		return event.CodeStopped
	}
	return event.CodeUnfinished
}
