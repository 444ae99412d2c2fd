// SPDX-License-Identifier: Apache-2.0

package nodepods

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
	"github.com/meshcni/meshcni/repair/controller"
)

// Pods are those of one node. Make it with [New].
type Pods struct {
	options  Options
	client   *controller.Client
	informer cache.SharedIndexInformer
	contact  *contact.Contact
	fatal    chan error

	mu       sync.Mutex
	status   podsource.AgentStatus
	brokenAt string // the version of what is known when the watch broke; empty when it never did
}

// Options say whose pods, and who wants to know. All fields but the last three must be set.
type Options struct {
	Server Server
	// Node is the name of the node.
	Node string
	// Version is the program's own.
	Version string
	Log     *slog.Logger
	// OnStatus is told how it is going, at first and whenever that changes; not by several goroutines at once. Once all pods are known that
	// stays so.
	OnStatus func(podsource.AgentStatus)
	// OnPod, if not nil, is told about each pod at first and whenever [Pods.Pod] answers something else about it; pod is nil when it is gone or
	// too large. It is not called by several goroutines at once.
	OnPod func(ref podsource.Ref, pod *interception.Pod)
	// Silence is for how long the API server may say nothing until Status isn't ready; 3 minutes when 0.
	Silence time.Duration
	// Now is the clock; [time.Now] when nil.
	Now func() time.Time
}

// defaultSilence lets two of the bookmarks go missing that a quiet watch has about once a minute.
const defaultSilence = 3 * time.Minute

// podsPath is where all pods are listed and watched.
const podsPath = "/api/v1/pods"

// New asks nobody yet. The error is about the options.
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
	informer, err := client.Informer(o.Node, controller.Selection{})
	if err != nil {
		return nil, err
	}
	p.client, p.informer = client, informer
	if err := p.informer.SetWatchErrorHandlerWithContext(p.failed); err != nil {
		return nil, fmt.Errorf("make an informer: %w", err)
	}
	if o.OnPod != nil {
		if _, err := p.informer.AddEventHandler(teller(o.OnPod)); err != nil {
			return nil, fmt.Errorf("hear of pods: %w", err)
		}
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
	if p.contact.Err() == nil { // else that has been said
		p.untold(contact.Other, err)
	}
	var authority x509.UnknownAuthorityError
	if errors.As(err, &authority) { // its CA is read at the start alone
		select {
		case p.fatal <- fmt.Errorf("the API server's certificate is of another CA than in %s: %w", p.options.Server.CAFile, err):
		default:
		}
	}
}

// answers is told that the API server fails in another way than before, or not any more.
func (p *Pods) answers(kind string, err error) {
	if err == nil {
		p.options.Log.Info("the API server tells about the node's pods again", "server", p.options.Server.URL)
		return
	}
	p.untold(kind, err)
}

// untold says why the API server doesn't tell.
func (p *Pods) untold(kind string, err error) {
	p.options.Log.Warn("the API server doesn't tell about the node's pods; trying again",
		"server", p.options.Server.URL, "failure", kind, "error", err)
	p.tell("the API server doesn't tell about the pods of node " + p.options.Node + ": " + kind + ": " + err.Error())
}

// Status is how it is going now. Unlike OnStatus it isn't ready while the API server has said nothing for too long, whatever is known.
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
	status.Reason = fmt.Sprintf("the API server has told nothing about the pods of node %s for %s: %s", p.options.Node, silent, server.Failure)
	if err := p.contact.Err(); err != nil {
		status.Reason += fmt.Sprintf(", %d times: %v", server.Failures, err)
	}
	return status, nil
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
	return podOf(known), nil
}

// teller passes on what the informer says about pods. Most updates of a pod are about its status, and are kept back.
func teller(tell func(podsource.Ref, *interception.Pod)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if ref, pod, known := answerOf(object); known {
				tell(ref, pod)
			}
		},
		UpdateFunc: func(before, after any) {
			_, last, _ := answerOf(before)
			if ref, pod, known := answerOf(after); known && !reflect.DeepEqual(last, pod) {
				tell(ref, pod)
			}
		},
		DeleteFunc: func(object any) {
			if missed, found := object.(cache.DeletedFinalStateUnknown); found {
				object = missed.Obj
			}
			if ref, _, known := answerOf(object); known {
				tell(ref, nil)
			}
		},
	}
}

// answerOf is what is known about an object's pod; nil for one that is too large to be kept.
func answerOf(object any) (ref podsource.Ref, pod *interception.Pod, known bool) {
	o, isPod := object.(*controller.Object)
	if !isPod {
		return ref, nil, false
	}
	ref = podsource.Ref{Namespace: o.Namespace, Name: o.Name}
	if o.TooLarge {
		return ref, nil, true
	}
	answer := podOf(o)
	return ref, &answer, true
}

func podOf(o *controller.Object) interception.Pod {
	return o.Spec.Pod(o.Namespace, o.Name, string(o.UID), o.Labels, o.Annotations)
}
