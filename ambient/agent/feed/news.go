// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"maps"
	"slices"

	"github.com/meshcni/meshcni/ambient"
)

// news is what a client has been told, and has not passed on yet. Of several changes of one object
// it has the last one, so its size is bounded by the pods of a node, however long the reader waits.
type news struct {
	passed     map[string]string // the namespaces of the pods that the reader knows, by UID
	pods       map[string]ambient.Pod
	namespaces map[string]ambient.Namespace
	gone       map[string]bool
	complete   bool
	// named are the UIDs in the snapshot that is under way; nil after a complete one.
	named map[string]bool
}

func newNews() *news {
	return &news{
		passed: map[string]string{}, pods: map[string]ambient.Pod{}, namespaces: map[string]ambient.Namespace{}, gone: map[string]bool{},
	}
}

// begin begins a snapshot. A namespace whose pods have not come any more is told again with them.
func (n *news) begin() {
	n.named = map[string]bool{}
	maps.DeleteFunc(n.namespaces, func(name string, _ ambient.Namespace) bool { return !n.inhabited(name) })
}

func (n *news) namespace(namespace ambient.Namespace) { n.namespaces[namespace.Name] = namespace }

func (n *news) pod(pod ambient.Pod) {
	n.pods[pod.UID] = pod
	delete(n.gone, pod.UID)
	if n.named != nil {
		n.named[pod.UID] = true
	}
}

// end notes that a pod is gone. The source names its namespace again before a later pod.
func (n *news) end(uid string) {
	namespace, passed := n.passed[uid]
	if passed {
		n.gone[uid] = true
	} else {
		namespace = n.pods[uid].Namespace
	}
	delete(n.pods, uid)
	if !n.inhabited(namespace) {
		delete(n.namespaces, namespace)
	}
}

// inhabited reports whether a namespace has pods.
func (n *news) inhabited(namespace string) bool {
	for _, pod := range n.pods {
		if pod.Namespace == namespace {
			return true
		}
	}
	for uid, of := range n.passed {
		if of == namespace && !n.gone[uid] {
			return true
		}
	}
	return false
}

// completed ends a snapshot: pods that it does not name are gone. It returns the UIDs that the
// snapshot names, or nil if there is none under way.
func (n *news) completed() map[string]bool {
	named := n.named
	if named == nil {
		return nil
	}
	n.named, n.complete = nil, true
	for _, known := range [][]string{slices.Collect(maps.Keys(n.passed)), slices.Collect(maps.Keys(n.pods))} {
		for _, uid := range known {
			if !named[uid] {
				n.end(uid)
			}
		}
	}
	return named
}

// take returns the news, and whether there are any. From now on the reader knows them. Namespaces
// wait for their first pod, so that the reader can forget those that have none.
func (n *news) take() (ambient.Change, bool) {
	change := ambient.Change{
		Pods: slices.Collect(maps.Values(n.pods)), Gone: slices.Collect(maps.Keys(n.gone)), Complete: n.complete,
	}
	for name, namespace := range n.namespaces {
		if n.inhabited(name) {
			change.Namespaces = append(change.Namespaces, namespace)
			delete(n.namespaces, name)
		}
	}
	for uid, pod := range n.pods {
		n.passed[uid] = pod.Namespace
	}
	for uid := range n.gone {
		delete(n.passed, uid)
	}
	clear(n.pods)
	clear(n.gone)
	n.complete = false
	return change, change.Complete || len(change.Pods)+len(change.Namespaces)+len(change.Gone) > 0
}
