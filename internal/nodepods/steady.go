// SPDX-License-Identifier: Apache-2.0

package nodepods

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// NewSteadyInformer returns an informer that hears of changes soon after the API server answers
// again. Client-go's own informer pauses up to 60 s after several failures: a reflector has a
// setting for that ([cache.ReflectorOptions]), which an informer cannot pass on. This one pauses
// for a random time: between 0.2 s and 1 s at first, and between 1 s and 5 s after some ten
// failures in two minutes. A handler of watch errors receives each failure.
//
// The [cache.ListWatch] makes the requests, and has both functions with contexts. The example is an
// object of the type that they return. The informer keeps what transform makes of each object,
// which has to be an object of the same type, and has no other transformation.
func NewSteadyInformer(requests *cache.ListWatch, example runtime.Object, transform cache.TransformFunc) cache.SharedIndexInformer {
	s := &steady{
		Store: cache.NewStore(cache.MetaNamespaceKeyFunc), transform: transform,
		events: make(chan watch.Event), ended: make(chan struct{}),
	}
	asking := &cache.ListWatch{
		ListWithContextFunc:  reporting(s, requests.ListWithContextFunc),
		WatchFuncWithContext: reporting(s, requests.WatchFuncWithContext),
	}
	s.reflector = cache.NewReflectorWithOptions(asking, example, s, cache.ReflectorOptions{
		Backoff: &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.25, Jitter: 4, Steps: 100, Cap: time.Second},
	})
	known := &cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}
	return steadyInformer{cache.NewSharedIndexInformer(known, example, 0, cache.Indexers{}), s}
}

// steadyInformer reports the failures of the reflector that asks the API server.
type steadyInformer struct {
	cache.SharedIndexInformer
	steady *steady
}

// LastSyncResourceVersion implements [cache.SharedInformer].
func (i steadyInformer) LastSyncResourceVersion() string {
	return i.steady.reflector.LastSyncResourceVersion()
}

// SetWatchErrorHandlerWithContext implements [cache.SharedInformer].
func (i steadyInformer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	if err := i.SharedIndexInformer.SetWatchErrorHandlerWithContext(handler); err != nil {
		return err
	}
	i.steady.handler.Store(&handler)
	return nil
}

// SetWatchErrorHandler implements [cache.SharedInformer].
func (i steadyInformer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return i.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handler(r, err) })
}

// steady is the store of a reflector with pauses of its own, which asks the API server. The
// informer's reflector gets one list from it, and then one watch that does not end.
type steady struct {
	cache.Store // what the informer's reflector is told of
	transform   cache.TransformFunc
	reflector   *cache.Reflector
	handler     atomic.Pointer[cache.WatchErrorHandlerWithContext]
	listed      bool
	events      chan watch.Event // first the list, as one object
	done        <-chan struct{}  // closed when the informer is to end
	ended       chan struct{}    // closed when the reflector has ended
}

// list starts the reflector, and returns what exists as soon as that is known.
func (s *steady) list(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	s.done = ctx.Done()
	go func() {
		defer close(s.ended)
		s.reflector.RunWithContext(klog.NewContext(ctx, klog.Logger{})) // its failures are reported
	}()
	select {
	case first := <-s.events:
		return first.Object, nil
	case <-s.done:
		return nil, ctx.Err()
	}
}

// watch returns the watch after the list.
func (s *steady) watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewBadRequest("there is a list instead of initial events")
	}
	return s, nil
}

// ResultChan implements [watch.Interface].
func (s *steady) ResultChan() <-chan watch.Event { return s.events }

// Stop implements [watch.Interface]. The informer's reflector calls it when the informer ends.
func (s *steady) Stop() { <-s.ended }

// Transformer implements [cache.TransformingStore].
func (s *steady) Transformer() cache.TransformFunc { return s.transform }

// Add implements [cache.ReflectorStore].
func (s *steady) Add(object any) error { return s.change(watch.Added, object, s.Store.Add) }

// Update implements [cache.ReflectorStore].
func (s *steady) Update(object any) error { return s.change(watch.Modified, object, s.Store.Update) }

// Delete implements [cache.ReflectorStore].
func (s *steady) Delete(object any) error { return s.change(watch.Deleted, object, s.Store.Delete) }

func (s *steady) change(kind watch.EventType, object any, do func(any) error) error {
	kept, err := s.keep(object)
	if err != nil {
		return err
	}
	if err := do(kept); err != nil {
		return err
	}
	return s.tell(kind, kept)
}

// keep returns what is kept of an object.
func (s *steady) keep(object any) (runtime.Object, error) {
	kept, err := s.transform(object)
	if err != nil {
		return nil, err
	}
	o, isObject := kept.(runtime.Object)
	if !isObject {
		return nil, fmt.Errorf("the transformation of an object returned a %T, which is none", kept)
	}
	return o, nil
}

// Replace implements [cache.ReflectorStore]. From the second list on, it tells of all that exists
// and of what does not exist any more.
func (s *steady) Replace(objects []any, version string) error {
	list, before := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: version}}, s.List()
	for i, object := range objects {
		kept, err := s.keep(object)
		if err != nil {
			return err
		}
		objects[i], list.Items = kept, append(list.Items, runtime.RawExtension{Object: kept})
	}
	if err := s.Store.Replace(objects, version); err != nil {
		return err
	}
	if !s.listed {
		s.listed = true
		return s.tell(watch.Added, list)
	}
	for _, item := range list.Items {
		if err := s.tell(watch.Modified, item.Object); err != nil {
			return err
		}
	}
	for _, object := range before {
		if _, found, err := s.Get(object); err == nil && !found {
			if err := s.Delete(object); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell tells the informer's reflector of a change.
func (s *steady) tell(kind watch.EventType, about runtime.Object) error {
	select {
	case s.events <- watch.Event{Type: kind, Object: about}:
		return nil
	case <-s.done:
		return context.Canceled
	}
}

// reporting returns a function that asks, and tells the informer's handler of failures.
func reporting[T any](
	s *steady, ask func(context.Context, metav1.ListOptions) (T, error),
) func(context.Context, metav1.ListOptions) (T, error) {
	return func(ctx context.Context, o metav1.ListOptions) (T, error) {
		answer, err := ask(ctx, o)
		expired := apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
		// After another failure to stream what exists, the reflector lists at once.
		again := o.SendInitialEvents == nil || utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)
		if handler := s.handler.Load(); handler != nil && err != nil && !expired && again && ctx.Err() == nil {
			(*handler)(ctx, s.reflector, err)
		}
		return answer, err
	}
}
