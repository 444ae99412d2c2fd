// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nodepods"
)

// Controller follows the pods of one node and their namespaces, and annotates the pods. Its methods
// may be called concurrently. Create it with [New].
type Controller struct {
	options    Options
	rest       rest.Interface
	namespaces cache.SharedIndexInformer
	woken      chan struct{} // has a value if Next may have something to tell
	asked      chan struct{} // has a value if a namespace has to be looked up
	stopped    chan struct{} // closed when Run ends

	mu   sync.Mutex
	news *news // nil until all pods and namespaces are known
	// lookups are the namespaces of pods that the informer of namespaces does not know: what the API
	// server says of each; nil until it was asked.
	lookups map[string]*ambient.Namespace
	// answers is closed, and replaced, when the API server answers again.
	answers chan struct{}
}

// ErrStopped is wrapped by the error of [Controller.Next] if [Controller.Run] has ended.
var ErrStopped = errors.New("the controller has stopped")

// New returns a controller, and sends no request yet. The error wraps [ErrOptions], or is about the
// configuration of the connection.
func New(o Options) (*Controller, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	c := &Controller{
		options: o.withDefaults(), woken: make(chan struct{}, 1), asked: make(chan struct{}, 1),
		stopped: make(chan struct{}), lookups: map[string]*ambient.Namespace{}, answers: make(chan struct{}),
	}
	return c, c.connect()
}

// Run follows pods and namespaces until ctx ends. It is called once, and waits for everything that
// it began. The error is about an informer of the pods that was stopped before.
func (c *Controller) Run(ctx context.Context) error {
	defer close(c.stopped)
	namespaces, err := c.namespaces.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.namespaceChanged,
		UpdateFunc: func(before, after any) {
			if !sameNamespace(before, after) {
				c.namespaceChanged(after)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("follow namespaces: %w", err)
	}
	pods, err := c.options.Pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.podChanged,
		UpdateFunc: func(before, after any) {
			if !c.samePod(before, after) {
				c.podChanged(after)
			}
		},
		DeleteFunc: c.podChanged,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil //nolint:nilerr // the caller has stopped the informer with this
	case err != nil:
		return fmt.Errorf("follow the node's pods: %w", err)
	}
	defer c.options.Pods.RemoveEventHandler(pods) //nolint:errcheck // the handler was added, so there is no error
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() { c.namespaces.RunWithContext(ctx) })
	for _, handler := range []cache.ResourceEventHandlerRegistration{namespaces, pods} {
		select {
		case <-handler.HasSyncedChecker().Done():
		case <-ctx.Done():
			return nil // the caller has stopped it
		}
	}
	c.mu.Lock()
	c.news = newNews(c.options.Pods.GetStore().ListKeys())
	c.mu.Unlock()
	signal(c.woken)
	c.lookUp(ctx)
	return nil
}

// podChanged notes that a pod is new, has changed or is gone.
func (c *Controller) podChanged(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return // not an object: an informer sends none
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.news == nil {
		return // it will be among the first
	}
	exists := c.pod(key) != nil
	c.news.addPod(key, exists)
	if !exists {
		delete(c.lookups, homeOf(key)) // a pod that waits for it has it looked up again
	}
	signal(c.woken)
}

// signal makes the reader of a channel look again.
func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default: // it will anyway
	}
}

// pod returns the pod that has the name now; nil if none has.
func (c *Controller) pod(key string) *nodepods.Object {
	object, found, err := c.options.Pods.GetStore().GetByKey(key)
	o, isPod := object.(*nodepods.Object)
	if err != nil || !found || !isPod {
		return nil
	}
	return o
}

// told returns the pod in the form that package ambient uses, without containers, which it does not
// read.
func (c *Controller) told(o *nodepods.Object) ambient.Pod {
	pod := ambient.Pod{
		Pod: interception.Pod{
			Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Labels: o.Labels, Annotations: o.Annotations,
			ServiceAccount: o.Spec.ServiceAccount, HostNetwork: o.Spec.HostNetwork,
		},
		Phase: o.Status.Phase, Addresses: o.Addresses(),
	}
	if c.options.Policy.IsProxy(pod) {
		pod.Created, pod.Ready = o.CreationTimestamp.UTC(), o.Ready()
	}
	return pod
}

// samePod reports whether an update changes nothing that is told. Most are about conditions and
// containers.
func (c *Controller) samePod(before, after any) bool {
	a, isOne := before.(*nodepods.Object)
	b, isTwo := after.(*nodepods.Object)
	return isOne && isTwo && a.UID == b.UID && a.Status.Phase == b.Status.Phase && slices.Equal(a.Status.PodIPs, b.Status.PodIPs) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) && c.told(a).Ready == c.told(b).Ready
}
