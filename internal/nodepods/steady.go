// SPDX-License-Identifier: Apache-2.0

package nodepods

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// NewSteadyInformer returns an informer that hears of changes soon after the API server answers
// again. Client-go's own informer pauses up to 60 s after several failures: a reflector has a
// setting for that ([cache.ReflectorOptions]), which an informer cannot pass on. This one pauses
// for a random time: between 0.2 s and 1 s at first, and between 1 s and 5 s after some ten
// failures in a row. A handler of watch errors receives each failure.
//
// The [cache.ListWatch] makes the requests, and has both functions with contexts. The bare object
// has these metadata and is otherwise empty.
func NewSteadyInformer(requests *cache.ListWatch, bare func(metav1.ObjectMeta) runtime.Object) cache.SharedIndexInformer {
	s := &steady{requests: requests, bare: bare, known: map[name]bool{}}
	s.reflector = cache.NewReflectorWithOptions(requests, bare(metav1.ObjectMeta{}), nil, cache.ReflectorOptions{})
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: s.list, WatchFuncWithContext: s.watch,
	}, bare(metav1.ObjectMeta{}), 0, cache.Indexers{})
	return steadyInformer{informer, s}
}

// steadyInformer also reports the failures that its reflector does not see.
type steadyInformer struct {
	cache.SharedIndexInformer
	steady *steady
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

// steady asks the API server in place of a reflector, which sees one list and then one watch that
// does not end. One goroutine at a time uses it.
type steady struct {
	requests  *cache.ListWatch
	bare      func(metav1.ObjectMeta) runtime.Object
	handler   atomic.Pointer[cache.WatchErrorHandlerWithContext]
	reflector *cache.Reflector // never runs: handlers get one
	known     map[name]bool    // what the reflector was told of
}

// name identifies an object. It shares the memory of the object's own strings.
type name struct{ namespace, name string }

func nameOf(o metav1.Object) name { return name{o.GetNamespace(), o.GetName()} }

// list answers the reflector's request, which may be for one page of several.
func (s *steady) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := persist(ctx, s, func() (runtime.Object, error) { return s.requests.ListWithContextFunc(ctx, o) })
	if err != nil {
		return nil, err
	}
	if o.Continue == "" {
		s.known = map[name]bool{}
	}
	return list, eachItem(list, func(item metav1.Object) { s.known[nameOf(item)] = true })
}

// watch answers the reflector's request.
func (s *steady) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	first, err := persist(ctx, s, func() (watch.Interface, error) { return s.requests.WatchFuncWithContext(ctx, o) })
	if err != nil {
		return nil, err
	}
	streams := o.SendInitialEvents != nil && *o.SendInitialEvents
	if streams {
		s.known = map[name]bool{}
	}
	ctx, end := context.WithCancel(ctx)
	w := &steadyWatch{
		steady: s, ctx: ctx, end: end, options: o, version: o.ResourceVersion, complete: !streams,
		told: make(chan watch.Event), ended: make(chan struct{}),
	}
	go w.run(first)
	return w, nil
}

// report tells the informer's handler of a failure. That the API server has forgotten a version is
// none.
func (s *steady) report(ctx context.Context, err error) {
	expired := apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
	if handler := s.handler.Load(); handler != nil && !expired && ctx.Err() == nil {
		(*handler)(ctx, s.reflector, err)
	}
}

// persist asks until the API server answers, whatever it answers, or until ctx ends.
func persist[T any](ctx context.Context, s *steady, ask func() (T, error)) (T, error) {
	for pause := pauses(); ; {
		answer, err := ask()
		if err == nil || !isAway(err) || ctx.Err() != nil {
			return answer, err
		}
		s.report(ctx, err)
		sleep(ctx, pause.Step(), err)
	}
}

// isAway reports whether the API server did not answer, or cannot answer now. What it refuses, or
// says about the version of a request, is for the reflector.
func isAway(err error) bool {
	answer, isAnswer := errors.AsType[*apierrors.StatusError](err)
	if !isAnswer {
		return true
	}
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return false
	}
	return answer.ErrStatus.Code >= http.StatusInternalServerError || answer.ErrStatus.Code == http.StatusTooManyRequests
}

// calm is how long a watch has to last so that the next pause is a first one.
const calm = 5 * time.Second

// pauses returns the pauses after failures. They vary, so that the nodes of a cluster do not ask at
// once.
func pauses() *wait.Backoff {
	return &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.25, Jitter: 4, Steps: 100, Cap: time.Second}
}

// sleep waits for the pause, for a longer one that the API server asks for, or until ctx ends.
func sleep(ctx context.Context, pause time.Duration, after error) {
	if seconds, asked := apierrors.SuggestsClientDelay(after); asked {
		pause = max(pause, time.Duration(seconds)*time.Second)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
