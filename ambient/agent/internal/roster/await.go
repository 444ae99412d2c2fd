// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// The errors of an event. Package agent documents them.
var (
	ErrUnknownPod = errors.New("the agent has not heard of the pod: see whether it reaches the API server")
	ErrStopped    = errors.New("the agent does not run")
	ErrReplaced   = errors.New("the pod has another network namespace since")
	ErrEnded      = errors.New("the container runtime has ended the pod's sandbox")
)

// Feed tells of the pods of the node and of their namespaces.
type Feed interface {
	Next(ctx context.Context) (ambient.Change, error)
}

// Follow calls learn with what a feed tells, until the context ends or the feed fails, and returns
// why.
func Follow(ctx context.Context, feed Feed, learn func(ambient.Change)) error {
	for {
		change, err := feed.Next(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("feed of the node's pods: %w", err)
		}
		learn(change)
	}
}

// AwaitDecision waits until the feed has told enough about a pod to decide. It sets the pod's UID.
// The roster is guarded by mu, with which it calls decide. The error wraps [ErrStopped] once
// stopped is closed, and [ErrUnknownPod] with the cause of a context that has ended.
func (r *Roster) AwaitDecision(
	ctx context.Context, mu sync.Locker, stopped <-chan struct{}, pod *podnetns.Pod, decide Decider,
) (interception.Decision, error) {
	for {
		mu.Lock()
		uid := r.UID(*pod)
		decision, known := decide(uid)
		if uid != "" {
			pod.UID = uid
		}
		changed := r.changed
		mu.Unlock()
		if known {
			return decision, nil
		}
		select {
		case <-changed:
		case <-stopped:
			return decision, fmt.Errorf("enrol pod %s: %w", pod, ErrStopped)
		case <-ctx.Done():
			return decision, fmt.Errorf("enrol pod %s: %w: %w", pod, ErrUnknownPod, context.Cause(ctx))
		}
	}
}

// Fate is what becomes of a pod's sandbox that the plugin has handed over.
type Fate struct {
	Settled  chan struct{} // closed when the pod is as wanted
	Replaced chan struct{} // closed when another sandbox takes the place of this one
	Ended    chan struct{} // closed when the runtime has ended the sandbox
}

// NewFate returns the fate of a sandbox that has just begun.
func NewFate() Fate {
	return Fate{make(chan struct{}), make(chan struct{}), make(chan struct{})}
}

// Await waits until the pod is as wanted. The error wraps [ErrReplaced], [ErrEnded], [ErrStopped]
// once stopped is closed, or is what unfinished returns for the pod and the cause of a
// context that has ended.
func (f Fate) Await(ctx context.Context, pod podnetns.Pod, stopped <-chan struct{}, unfinished func(podnetns.Pod, error) error) error {
	var err error
	select {
	case <-f.Settled:
		return nil
	case <-f.Replaced:
		err = ErrReplaced
	case <-f.Ended:
		err = ErrEnded
	case <-stopped:
		err = ErrStopped
	case <-ctx.Done():
		return unfinished(pod, context.Cause(ctx))
	}
	return fmt.Errorf("enrol pod %s: %w", pod, err)
}

// Unfinished says at which step a pod is, and why if that step has failed. The step is empty if the
// agent does not deal with the pod.
func Unfinished(pod podnetns.Pod, step ambient.Step, failure, cause error) error {
	switch {
	case step == "" && failure == nil:
		return fmt.Errorf("enrol pod %s: %w", pod, cause)
	case failure == nil:
		return fmt.Errorf("enrol pod %s: step %q is not done: %w", pod, step, cause)
	}
	return fmt.Errorf("enrol pod %s: step %q: %w: %w", pod, step, failure, cause)
}
