// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/examples/internal/contact"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/repair/controller"
)

// Pods are those of one node. Create them with [New].
type Pods struct {
	options  Options
	client   *controller.Client
	informer cache.SharedIndexInformer
	contact  *contact.Contact
	fatal    chan error

	mu       sync.Mutex
	status   podsource.AgentStatus
	brokenAt string // the version of what was known when the watch broke; may be empty
}

// Options configure whose pods are watched, and who receives reports. All fields but the last four
// must be set.
type Options struct {
	Server Server
	// Node is the name of the node.
	Node string
	// Version is the program's own.
	Version string
	Log     *slog.Logger
	// OnStatus receives the status, at first and whenever it changes. It is not called
	// concurrently. Once all pods are known the status stays ready.
	OnStatus func(podsource.AgentStatus)
	// OnPod, if not nil, receives each pod at first and whenever [Pods.Pod] returns something else
	// for it; pod is nil if it was removed or is too large. It is not called concurrently.
	OnPod func(ref podsource.Ref, pod *interception.Pod)
	// Keep are the names of labels and annotations that the informer keeps even of a pod that is too
	// large.
	Keep []string
	// Silence is for how long the API server may be silent before Status is not ready; 0 stands for
	// 3 minutes.
	Silence time.Duration
	// Now is the clock; nil stands for [time.Now].
	Now func() time.Time
}

// defaultSilence allows two bookmarks to be lost; a quiet watch has about one a minute.
const defaultSilence = 3 * time.Minute

// podsPath is where all pods are listed and watched.
const podsPath = "/api/v1/pods"

// New returns the pods of a node, and sends no request yet. The error is about the options.
func New(o Options) (*Pods, error) {
	o.Silence = cmp.Or(o.Silence, defaultSilence)
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Pods{options: o, fatal: make(chan error, 1)}
	p.contact = contact.New(contact.Options{Path: podsPath, Now: o.Now, OnChange: p.answers})
	config := o.Server.Config(o.Version)
	config.Wrap(p.contact.Wrap)
	client, err := controller.NewClient(config)
	if err != nil {
		return nil, err
	}
	informer, err := client.Informer(o.Node, controller.Selection{}, o.Keep...)
	if err != nil {
		return nil, err
	}
	p.client, p.informer = client, informer
	if err := p.informer.SetWatchErrorHandlerWithContext(p.failed); err != nil {
		return nil, fmt.Errorf("make an informer: %w", err)
	}
	if o.OnPod != nil {
		if _, err := p.informer.AddEventHandler(handler(o.OnPod)); err != nil {
			return nil, fmt.Errorf("watch pods: %w", err)
		}
	}
	return p, nil
}

// Client returns the client that the pods are read with.
func (p *Pods) Client() *controller.Client { return p.client }

// Informer returns the informer with the pods. Run runs it.
func (p *Pods) Informer() cache.SharedIndexInformer { return p.informer }

// Run keeps the pods known until ctx ends. It returns earlier, with an error, if only a restart can
// help.
func (p *Pods) Run(ctx context.Context) error {
	p.setStatus("the pods of node " + p.options.Node + " are being listed")
	ctx, end := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { p.informer.RunWithContext(ctx) })
	defer group.Wait()
	defer end()
	select {
	case <-p.informer.HasSyncedChecker().Done():
		p.setStatus("")
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

// setStatus takes and passes on the status; an empty reason means that all pods are known.
func (p *Pods) setStatus(reason string) {
	status := podsource.AgentStatus{Ready: reason == "", Reason: reason, Version: p.options.Version}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status.Ready || p.status == status { // once all pods are known, they stay known
		return
	}
	p.status = status
	p.options.OnStatus(status)
}

// failed handles the end of a list or a watch.
func (p *Pods) failed(_ context.Context, _ *cache.Reflector, err error) {
	p.mu.Lock()
	p.brokenAt = p.informer.LastSyncResourceVersion()
	p.mu.Unlock()
	if p.contact.Err() == nil { // otherwise it was reported already
		p.unanswered(contact.Other, err)
	}
	if _, is := errors.AsType[x509.UnknownAuthorityError](err); is { // the CA is read only at the start
		select {
		case p.fatal <- fmt.Errorf("the API server's certificate is of another CA than in %s: %w", p.options.Server.CAFile, err):
		default:
		}
	}
}

// answers logs that the API server fails in another way than before, or no longer.
func (p *Pods) answers(kind string, err error) {
	if err == nil {
		p.options.Log.Info("the API server answers about the node's pods again", "server", p.options.Server.URL)
		return
	}
	p.unanswered(kind, err)
}

// unanswered reports why the API server does not answer.
func (p *Pods) unanswered(kind string, err error) {
	p.options.Log.Warn("the API server doesn't answer about the node's pods; trying again",
		"server", p.options.Server.URL, "failure", kind, "error", err)
	p.setStatus("the API server doesn't answer about the pods of node " + p.options.Node + ": " + kind + ": " + err.Error())
}

// Status returns the current status. Unlike the status for OnStatus, it is not ready while the API
// server has been silent for too long, whatever is known.
func (p *Pods) Status(context.Context) (podsource.AgentStatus, error) {
	p.mu.Lock()
	status := p.status
	p.mu.Unlock()
	server := p.contact.Status()
	status.Server = &server
	if server.Age <= p.options.Silence.Seconds() {
		return status, nil
	}
	server.Failure = cmp.Or(server.Failure, contact.Timeout)
	silent := (time.Duration(server.Age) * time.Second).String()
	status.Ready = false
	status.Reason = fmt.Sprintf("the API server has said nothing about the pods of node %s for %s: %s", p.options.Node, silent, server.Failure)
	if err := p.contact.Err(); err != nil {
		status.Reason += fmt.Sprintf(", %d times: %v", server.Failures, err)
	}
	return status, nil
}

// Pod answers from what is known. The error is podsource.ErrNotFound, or podsource.ErrNotReady if
// another source may know better.
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
	known, isPod := object.(*nodepods.Object)
	switch {
	case !found || !isPod:
		if brokenAt != "" && brokenAt == p.informer.LastSyncResourceVersion() {
			return interception.Pod{}, fmt.Errorf("%w: the API server has not answered lately", podsource.ErrNotReady)
		}
		return interception.Pod{}, podsource.ErrNotFound
	case known.TooLarge:
		return interception.Pod{}, fmt.Errorf("%w: the pod has more than %d bytes, which are not kept here", podsource.ErrNotReady, nodepods.MaxPod)
	}
	return known.Pod(), nil
}

// handler passes on the informer's events about pods. It drops most updates, which are about a
// pod's status.
func handler(changed func(podsource.Ref, *interception.Pod)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if ref, pod, known := answerOf(object); known {
				changed(ref, pod)
			}
		},
		UpdateFunc: func(before, after any) {
			_, last, _ := answerOf(before)
			if ref, pod, known := answerOf(after); known && !reflect.DeepEqual(last, pod) {
				changed(ref, pod)
			}
		},
		DeleteFunc: func(object any) {
			if missed, found := object.(cache.DeletedFinalStateUnknown); found {
				object = missed.Obj
			}
			if ref, _, known := answerOf(object); known {
				changed(ref, nil)
			}
		},
	}
}

// answerOf returns what is known about an object's pod; nil for a pod that is too large to be kept.
func answerOf(object any) (ref podsource.Ref, pod *interception.Pod, known bool) {
	o, isPod := object.(*nodepods.Object)
	if !isPod {
		return ref, nil, false
	}
	ref = podsource.Ref{Namespace: o.Namespace, Name: o.Name}
	if o.TooLarge {
		return ref, nil, true
	}
	answer := o.Pod()
	return ref, &answer, true
}
