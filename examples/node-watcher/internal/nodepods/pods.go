// SPDX-License-Identifier: Apache-2.0

package nodepods

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/repair/controller"
)

// Pods are those of one node. Make it with [New].
type Pods struct {
	options  Options
	client   *controller.Client
	informer cache.SharedIndexInformer
	fatal    chan error

	mu       sync.Mutex
	status   podsource.AgentStatus
	brokenAt string // the version of what is known when the watch broke; empty when it never did
}

// Options say whose pods, and who wants to know. All fields must be set.
type Options struct {
	Server Server
	// Node is the name of the node.
	Node string
	// Version is the program's own.
	Version string
	Log     *slog.Logger
	// OnStatus is told how it is going, at first and whenever that changes; not by several goroutines at once.
	OnStatus func(podsource.AgentStatus)
}

// New asks nobody yet. The error is about the options.
func New(o Options) (*Pods, error) {
	client, err := o.Server.Client(o.Version)
	if err != nil {
		return nil, err
	}
	informer, err := client.Informer(o.Node, controller.Selection{})
	if err != nil {
		return nil, err
	}
	p := &Pods{options: o, client: client, informer: informer, fatal: make(chan error, 1)}
	if err := p.informer.SetWatchErrorHandlerWithContext(p.failed); err != nil {
		return nil, fmt.Errorf("make an informer: %w", err)
	}
	return p, nil
}

// Client is the one by which they are known.
func (p *Pods) Client() *controller.Client { return p.client }

// Informer has them. Run runs it.
func (p *Pods) Informer() cache.SharedIndexInformer { return p.informer }

// Run keeps the pods known until ctx ends. It returns earlier, with an error, when only a new start could help.
func (p *Pods) Run(ctx context.Context) error {
	p.tell("the pods of node " + p.options.Node + " are being listed")
	ctx, end := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { p.informer.RunWithContext(ctx) })
	defer group.Wait()
	defer end()
	select {
	case <-p.informer.HasSyncedChecker().Done():
		p.tell("")
	case err := <-p.fatal:
		return err
	case <-ctx.Done():
		return nil
	}
	select {
	case err := <-p.fatal:
		return err
	case <-ctx.Done():
		return nil
	}
}

// tell is for news; empty means that all pods are known.
func (p *Pods) tell(reason string) {
	status := podsource.AgentStatus{Ready: reason == "", Reason: reason, Version: p.options.Version}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status.Ready || p.status == status { // once all is known, it stays known
		return
	}
	p.status = status
	p.options.OnStatus(status)
}

// failed is told why a list or a watch ended.
func (p *Pods) failed(_ context.Context, _ *cache.Reflector, err error) {
	p.mu.Lock()
	p.brokenAt = p.informer.LastSyncResourceVersion()
	p.mu.Unlock()
	p.options.Log.Warn("the API server doesn't tell about the node's pods; trying again", "server", p.options.Server.URL, "error", err)
	p.tell("the API server doesn't tell about the pods of node " + p.options.Node + ": " + err.Error())
	var authority x509.UnknownAuthorityError
	if errors.As(err, &authority) { // its CA is read at the start alone
		select {
		case p.fatal <- fmt.Errorf("the API server's certificate is of another CA than in %s: %w", p.options.Server.CAFile, err):
		default:
		}
	}
}

// Status is how it is going.
func (p *Pods) Status(context.Context) (podsource.AgentStatus, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, nil
}

// Pod answers from what is known. The error is podsource.ErrNotFound, or podsource.ErrNotReady when another source may know better.
func (p *Pods) Pod(_ context.Context, ref podsource.Ref) (interception.Pod, error) {
	p.mu.Lock()
	status, brokenAt := p.status, p.brokenAt
	p.mu.Unlock()
	if !status.Ready {
		return interception.Pod{}, fmt.Errorf("%w: %s", podsource.ErrNotReady, status.Reason)
	}
	object, found, err := p.informer.GetStore().GetByKey(ref.String())
	if err != nil {
		return interception.Pod{}, fmt.Errorf("look for pod %s: %w", ref, err)
	}
	known, isPod := object.(*controller.Object)
	switch {
	case !found || !isPod:
		if brokenAt != "" && brokenAt == p.informer.LastSyncResourceVersion() {
			return interception.Pod{}, fmt.Errorf("%w: the API server has told nothing lately", podsource.ErrNotReady)
		}
		return interception.Pod{}, podsource.ErrNotFound
	case known.TooLarge:
		return interception.Pod{}, fmt.Errorf("%w: the pod has more than %d bytes, which are not kept here", podsource.ErrNotReady, controller.MaxPod)
	}
	return known.Spec.Pod(known.Namespace, known.Name, string(known.UID), known.Labels, known.Annotations), nil
}
