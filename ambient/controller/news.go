// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"

	"github.com/meshcni/meshcni/ambient"
)

// batch is how many pods one change has at most, so that few are converted at a time.
const batch = 64

// news is what Next has to tell, as names, and which pods it has told of. It has no more names than
// there are pods on the node, and pods that are gone and were told of.
type news struct {
	pods       map[string]bool   // by namespace/name
	namespaces map[string]bool   // by name
	told       map[string]string // UIDs by namespace/name
	homes      map[string]int    // how many of those pods a namespace has
	complete   bool              // all have been told of
}

func newNews(pods []string) *news {
	n := &news{pods: map[string]bool{}, namespaces: map[string]bool{}, told: map[string]string{}, homes: map[string]int{}}
	for _, key := range pods {
		n.pods[key] = true
	}
	return n
}

// addPod notes that there is news of a pod. One that is gone before it was told of is none.
func (n *news) addPod(key string, exists bool) {
	if _, told := n.told[key]; exists || told {
		n.pods[key] = true
		return
	}
	delete(n.pods, key)
}

// addNamespace notes that there is news of a namespace. One without pods that were told of is none.
func (n *news) addNamespace(name string) {
	if n.homes[name] > 0 {
		n.namespaces[name] = true
	}
}

// tell notes that a pod was told of, and reports whether it is the first of its namespace.
func (n *news) tell(key, uid string) (first bool) {
	if _, told := n.told[key]; !told {
		home := homeOf(key)
		n.homes[home]++
		first = n.homes[home] == 1
	}
	n.told[key] = uid
	return first
}

// forget notes that a pod was told to be gone.
func (n *news) forget(key string) {
	delete(n.told, key)
	home := homeOf(key)
	if n.homes[home]--; n.homes[home] == 0 {
		delete(n.homes, home)
		delete(n.namespaces, home)
	}
}

func homeOf(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

// Next waits for news of the pods and their namespaces. The first changes together tell of all that
// there are, and the last of these is Complete. Later ones tell of each pod and namespace as it is
// then: what has changed several times since is told once. Only namespaces of pods that were told
// of are. Of a pod that has ended for good, Next tells only if it has told of the pod before. What
// is told is shared, and must not be changed.
//
// One reader calls Next: what one has been told is not told to another. The error is the end of
// ctx, or wraps [ErrStopped].
func (c *Controller) Next(ctx context.Context) (ambient.Change, error) {
	for {
		if change, isNews := c.take(); isNews {
			return change, nil
		}
		select {
		case <-c.woken:
		case <-ctx.Done():
			return ambient.Change{}, context.Cause(ctx)
		case <-c.stopped:
			return ambient.Change{}, ErrStopped
		}
	}
}

// take returns what there is to tell.
func (c *Controller) take() (change ambient.Change, isNews bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.news == nil {
		return change, false
	}
	for name := range c.news.namespaces {
		delete(c.news.namespaces, name)
		if namespace, known := c.namespace(name); known {
			change.Namespaces = append(change.Namespaces, namespace)
		}
	}
	for key := range c.news.pods {
		if len(change.Pods)+len(change.Gone) >= batch {
			break
		}
		if c.describe(key, &change) {
			delete(c.news.pods, key)
		}
	}
	change.Complete = !c.news.complete && len(c.news.pods) == 0
	c.news.complete = c.news.complete || change.Complete
	return change, change.Complete || len(change.Namespaces)+len(change.Pods)+len(change.Gone) > 0
}

// describe adds to a change what there is to tell of a pod. It returns false if the pod has to wait
// for its namespace. The caller holds mu.
func (c *Controller) describe(key string, change *ambient.Change) (told bool) {
	o := c.pod(key)
	uid, known := c.news.told[key]
	if known && (o == nil || string(o.UID) != uid) {
		change.Gone = append(change.Gone, uid)
		c.news.forget(key)
		known = false
	}
	if o == nil {
		return true
	}
	pod := c.told(o)
	if pod.Finished() && !known {
		return true
	}
	namespace, found := c.namespace(pod.Namespace)
	if !found {
		return false
	}
	if c.news.tell(key, pod.UID) {
		change.Namespaces = append(change.Namespaces, namespace)
	}
	change.Pods = append(change.Pods, pod)
	return true
}
