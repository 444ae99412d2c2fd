// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/upstream"
)

// takeUnwantedLocked begins to withdraw the pods that Istio's own agent has enrolled, as their
// annotations say, and that are not wanted: their rules would stay, and the proxy forgets the pods.
// The caller holds mu.
func (a *Agent) takeUnwantedLocked() {
	if len(a.options.TakeOver) == 0 || a.start == nil || a.options.Retiring {
		return
	}
	for uid, pod := range a.roster.Pods {
		decision, known := a.decide(uid)
		enrolled := ambient.Status(pod.Annotations[a.options.Vocabulary.Status]) != ambient.NoStatus && !pod.HostNetwork && !pod.Finished()
		if enrolled && known && !decision.Capture && a.workers[uid] == nil {
			a.employLocked(uid, func(w *worker) { w.former = true })
		}
	}
}

// hasFormer reports whether rules of Istio's own agent are in the open namespace of a pod that is
// to leave the mesh. Rules that some program has changed stay, and the pod does, too, unless it is
// this agent's by now: its own rules go in any case.
func (w *worker) hasFormer(ctx context.Context, wanted ambient.Wanted) (has bool, err error) {
	if wanted.Enrolled || wanted.Gone || w.alone {
		return false, nil
	}
	has, err = w.agent.options.hasUpstream(ctx, w)
	if errors.Is(err, ErrUpstream) && w.recorded {
		has, err = false, nil
	}
	if err == nil && has && w.plan == nil {
		err = w.makePlan()
	}
	w.alone = err == nil && !has
	return has, err
}

// hasUpstream reports whether rules of Istio's own agent are in the open namespace. The error wraps
// [ErrUpstream] if some are there that some program has changed.
func (o *Options) hasUpstream(ctx context.Context, w *worker) (has bool, err error) {
	left := changed{}
	for _, d := range o.TakeOver {
		state, err := o.observeOthers(ctx, d, w.namespace)
		if err != nil {
			return false, fmt.Errorf("look for rules of Istio's own agent: %w", err)
		}
		found, err := upstream.Recognise(state.Foreign, o.Numbers)
		if err != nil {
			return false, err
		}
		for _, rules := range found {
			has = left.recognises(rules) || has
		}
	}
	return has, left.err(w.namespace)
}

// takeOverFormer makes the rules of Istio's own agent, in a pod that is to leave the mesh, the
// agent's: then the pod can leave as others do.
func (w *worker) takeOverFormer(ctx context.Context) error {
	if !w.former {
		return nil
	}
	err := w.apply(ctx, false)
	if err == nil {
		err = w.takeOver(ctx)
	}
	w.former = err != nil
	return err
}
