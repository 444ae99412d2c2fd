// SPDX-License-Identifier: Apache-2.0

package nodepods

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"
)

// steadyWatch is a watch that goes on until it is stopped. After a failure it lists, and tells of
// what may have changed, as a reflector does.
type steadyWatch struct {
	*steady
	ctx     context.Context //nolint:containedctx // that of the reflector's request
	end     context.CancelFunc
	options metav1.ListOptions
	version string // up to which all has been told
	// complete reports that all objects have been told of. Until then the reflector begins anew after
	// a failure.
	complete bool
	told     chan watch.Event
	ended    chan struct{}
}

// ResultChan implements [watch.Interface].
func (w *steadyWatch) ResultChan() <-chan watch.Event { return w.told }

// Stop implements [watch.Interface]. It waits for the end.
func (w *steadyWatch) Stop() {
	w.end()
	<-w.ended
}

// run tells of changes until the watch is stopped, or fails before it is complete.
func (w *steadyWatch) run(current watch.Interface) {
	defer close(w.ended)
	defer close(w.told)
	for pause := pauses(); ; {
		begin := time.Now()
		err := w.pass(current)
		if w.ctx.Err() != nil || !w.complete {
			return
		}
		if time.Since(begin) >= calm {
			pause = pauses()
		}
		if current = w.reconnect(pause, err); current == nil {
			return
		}
	}
}

// reconnect watches again. After a failure of the watch before, or of this one, it lists first. It
// returns nil when the watch is stopped.
func (w *steadyWatch) reconnect(pause *wait.Backoff, failure error) watch.Interface {
	for {
		if failure != nil {
			sleep(w.ctx, pause.Step(), failure)
			failure = w.relist()
		}
		if failure == nil {
			var next watch.Interface
			if next, failure = w.resume(); failure == nil {
				return next
			}
		}
		if w.ctx.Err() != nil {
			return nil
		}
		w.report(w.ctx, failure)
	}
}

// resume watches for what has changed since it was told of.
func (w *steadyWatch) resume() (watch.Interface, error) {
	o := w.options
	o.SendInitialEvents, o.ResourceVersionMatch, o.ResourceVersion = nil, "", w.version
	return w.requests.WatchFuncWithContext(w.ctx, o)
}

var errShort = errors.New("the API server has ended a watch at once")

// pass passes on what a watch tells until it ends. It returns nil after the usual end.
func (w *steadyWatch) pass(current watch.Interface) error {
	defer current.Stop()
	begin, some := time.Now(), false
	for {
		select {
		case <-w.ctx.Done():
			return w.ctx.Err()
		case event, open := <-current.ResultChan():
			switch {
			case !open && !some && time.Since(begin) < time.Second:
				return errShort
			case !open:
				return nil
			case event.Type == watch.Error && w.complete:
				return apierrors.FromObject(event.Object)
			}
			some = true
			if err := w.tell(event); err != nil {
				return err
			}
		}
	}
}

// tell tells the reflector of an event, and remembers what it is about.
func (w *steadyWatch) tell(event watch.Event) error {
	object, isObject := event.Object.(metav1.Object)
	switch {
	case !isObject: // a failure, or what the reflector complains about
	case event.Type == watch.Bookmark:
		w.complete = w.complete || object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
	case event.Type == watch.Deleted:
		delete(w.known, nameOf(object))
	default:
		w.known[nameOf(object)] = true
	}
	select {
	case w.told <- event:
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	if isObject {
		w.version = object.GetResourceVersion()
	}
	return nil
}

// relist lists, and tells of all that exists and of what does not exist any more.
func (w *steadyWatch) relist() error {
	found, version := map[name]bool{}, ""
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list, err := w.requests.ListWithContextFunc(ctx, o)
		if err != nil {
			return nil, err
		}
		of, err := meta.ListAccessor(list)
		if err == nil {
			version = of.GetResourceVersion()
		}
		return list, err
	})
	err := pages.EachListItem(w.ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		if object, isObject := item.(metav1.Object); isObject {
			found[nameOf(object)] = true
		}
		return w.tell(watch.Event{Type: watch.Modified, Object: item})
	})
	if err != nil {
		return fmt.Errorf("list after a failure: %w", err)
	}
	for former := range w.known {
		if !found[former] {
			gone := w.bare(metav1.ObjectMeta{Namespace: former.namespace, Name: former.name, ResourceVersion: version})
			if err := w.tell(watch.Event{Type: watch.Deleted, Object: gone}); err != nil {
				return err
			}
		}
	}
	return w.tell(watch.Event{Type: watch.Bookmark, Object: w.bare(metav1.ObjectMeta{ResourceVersion: version})})
}

// eachItem calls do for each object of a list.
func eachItem(list runtime.Object, do func(metav1.Object)) error {
	return meta.EachListItem(list, func(item runtime.Object) error {
		if object, isObject := item.(metav1.Object); isObject {
			do(object)
		}
		return nil
	})
}
