// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

// permissions is a controller's way to the API server that remembers what its role lacks.
type permissions struct {
	controller.Cluster

	mu        sync.Mutex
	forbidden map[string]string
}

// Do labels, deletes or evicts a pod.
func (p *permissions) Do(ctx context.Context, action repair.Action) error {
	err := p.Cluster.Do(ctx, action)
	p.note(string(action.Do), err)
	return err
}

// Tell puts an event on a pod.
func (p *permissions) Tell(ctx context.Context, event controller.Event) error {
	err := p.Cluster.Tell(ctx, event)
	p.note(repairconf.Telling, err)
	return err
}

// note remembers an answer of the API server: what is forbidden is so until it succeeds. The first refusal stands for all, so that there is no
// news with each pod.
func (p *permissions) note(what string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		delete(p.forbidden, what)
	case apierrors.IsForbidden(err) && p.forbidden[what] == "":
		if p.forbidden == nil {
			p.forbidden = map[string]string{}
		}
		p.forbidden[what] = err.Error()
	}
}

// missing is what is forbidden, for a [repairconf.Status].
func (p *permissions) missing() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.forbidden)
}
