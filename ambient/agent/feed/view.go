// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/meshcni/meshcni/ambient"
)

// view is what the source has told. Each connection compares it with what its agent was told, so
// there is no queue that could overflow.
type view struct {
	mu         sync.Mutex
	pods       map[string]numbered[*ambient.Pod] // by UID
	namespaces map[string]numbered[*ambient.Namespace]
	untold     map[string]bool // what could not be taken over: UIDs, and names of namespaces after a slash
	complete   bool
	number     uint64        // of the last change
	changed    chan struct{} // closed at the next change
}

// numbered is an object with the number of the change that brought it.
type numbered[T any] struct {
	object T
	number uint64
}

func newView() *view {
	return &view{
		pods: map[string]numbered[*ambient.Pod]{}, namespaces: map[string]numbered[*ambient.Namespace]{},
		untold: map[string]bool{}, changed: make(chan struct{}),
	}
}

// learn takes over a change. What cannot be sent is not taken over: the object stays as it was, and
// the view is not complete. It returns an error for each by the pod's UID, or by a slash and the
// namespace's name.
func (v *view) learn(change ambient.Change) map[string]error {
	v.mu.Lock()
	defer v.mu.Unlock()
	failures := map[string]error{}
	for _, namespace := range change.Namespaces {
		key := "/" + namespace.Name
		v.note(failures, key, replace(v, v.namespaces, namespace.Name, &namespace))
	}
	for _, pod := range change.Pods {
		v.note(failures, pod.UID, replace(v, v.pods, pod.UID, slim(pod)))
	}
	for _, uid := range change.Gone {
		delete(v.pods, uid)
		delete(v.untold, uid)
	}
	v.complete = v.complete || change.Complete
	close(v.changed)
	v.changed = make(chan struct{})
	return failures
}

func (v *view) note(failures map[string]error, key string, err error) {
	delete(v.untold, key)
	if err != nil {
		failures[key], v.untold[key] = err, true
	}
}

// replace puts an object in the place of another one, unless it is the same.
func replace[T any](v *view, in map[string]numbered[T], key string, object T) error {
	if former, is := in[key]; is && reflect.DeepEqual(former.object, object) {
		return nil
	}
	if _, err := marshal(object, maxFromSource); err != nil {
		return err
	}
	v.number++
	in[key] = numbered[T]{object, v.number}
	return nil
}

// audience is what the agent of a connection was told: the numbers of the changes, by UID and by
// name.
type audience struct {
	pods       map[string]uint64
	namespaces map[string]uint64
	complete   bool
}

func newAudience() *audience {
	return &audience{pods: map[string]uint64{}, namespaces: map[string]uint64{}}
}

// news returns the messages that the agent of a connection must still be told, and counts them as
// told. Changed is closed when there may be more.
//
// A namespace comes before its pods, and again before the next pod after the last one is gone: in
// between, the agent may forget it. For that, pods that are gone come after new ones.
func (v *view) news(a *audience) (messages []any, changed <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pods := slices.Collect(maps.Values(v.pods))
	slices.SortFunc(pods, func(x, y numbered[*ambient.Pod]) int { return cmp.Compare(x.number, y.number) })
	inhabited := map[string]bool{}
	for _, pod := range pods {
		name := pod.object.Namespace
		inhabited[name] = true
		if namespace, is := v.namespaces[name]; is && a.namespaces[name] != namespace.number {
			a.namespaces[name] = namespace.number
			messages = append(messages, namespace.object)
		}
		if a.pods[pod.object.UID] != pod.number {
			a.pods[pod.object.UID] = pod.number
			messages = append(messages, pod.object)
		}
	}
	for uid := range a.pods {
		if _, is := v.pods[uid]; !is {
			delete(a.pods, uid)
			messages = append(messages, &gone{uid})
		}
	}
	maps.DeleteFunc(a.namespaces, func(name string, _ uint64) bool { return !inhabited[name] })
	if v.complete && len(v.untold) == 0 && !a.complete {
		a.complete = true
		messages = append(messages, &complete{})
	}
	return messages, v.changed
}
