// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"fmt"
	"maps"
	"net/http"
	"sync"
)

// Cluster is an API server with pods. It is safe for concurrent use; create it with [New].
type Cluster struct {
	mu      sync.Mutex
	version int
	objects map[key]object
	events  []event
	changed chan struct{} // closed with the next change
	refuse  int           // the status of all answers; 0 for the usual ones
	token   string
	watches map[resource]int
	expired int           // watches cannot go on from an earlier version
	marks   int           // bookmarks that every watch should have sent
	mute    chan struct{} // not nil while the server is muted; closed at the end of that

	nodes     map[string][]string // their taints
	writes    []Write
	told      []Event
	answer    func(*http.Request) (status int)
	protected bool // by a disruption budget
}

// New returns an empty cluster.
func New() *Cluster {
	return &Cluster{
		version: 1, objects: map[key]object{}, nodes: map[string][]string{}, changed: make(chan struct{}), watches: map[resource]int{},
	}
}

// update changes the cluster, and tells all watches.
func (c *Cluster) update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

// Put creates or changes pods.
func (c *Cluster) Put(all ...Pod) {
	c.update(func() {
		for _, p := range all {
			c.putPod(p)
		}
	})
}

func (c *Cluster) putPod(p Pod) { c.put(object{key: key{pods, p.Namespace, p.Name}, pod: p}) }

func (c *Cluster) put(o object) {
	kind := "ADDED"
	if _, found := c.objects[o.key]; found {
		kind = "MODIFIED"
	}
	c.version++
	o.version = c.version
	c.objects[o.key] = o
	c.events = append(c.events, event{kind, o})
}

// Change changes a pod, if it exists, whatever else is changing it.
func (c *Cluster) Change(namespace, name string, do func(p *Pod)) (found bool) {
	c.update(func() {
		var o object
		if o, found = c.objects[key{pods, namespace, name}]; found {
			do(&o.pod)
			c.putPod(o.pod)
		}
	})
	return found
}

// Delete deletes a pod.
func (c *Cluster) Delete(namespace, name string) {
	c.update(func() { c.remove(key{pods, namespace, name}) })
}

func (c *Cluster) remove(k key) {
	c.version++
	gone := c.objects[k]
	gone.key, gone.version = k, c.version
	delete(c.objects, k)
	c.events = append(c.events, event{"DELETED", gone})
}

// PutConfigMap creates a ConfigMap, or recreates it.
func (c *Cluster) PutConfigMap(namespace, name string) {
	c.update(func() {
		k := key{configMaps, namespace, name}
		delete(c.objects, k)
		c.put(object{key: k, uid: fmt.Sprint("uid-", c.version)})
	})
}

// DeleteConfigMap deletes a ConfigMap.
func (c *Cluster) DeleteConfigMap(namespace, name string) {
	c.update(func() { c.remove(key{configMaps, namespace, name}) })
}

// PutNamespace creates a namespace, or changes its labels.
func (c *Cluster) PutNamespace(name string, labels map[string]string) {
	c.update(func() { c.put(object{key: key{namespaces, "", name}, uid: "uid-" + name, labels: maps.Clone(labels)}) })
}

// DeleteNamespace deletes a namespace, but not what is in it.
func (c *Cluster) DeleteNamespace(name string) {
	c.update(func() { c.remove(key{namespaces, "", name}) })
}

// Refuse answers every request with the status, and ends all watches; those of ConfigMaps only with
// 503. 0 ends the refusal.
func (c *Cluster) Refuse(status int) {
	c.update(func() { c.refuse = status })
}

// Expire ends all watches with 410, and so each one that is to go on from an earlier version, as an
// API server does that has forgotten what has changed since.
func (c *Cluster) Expire() {
	c.update(func() {
		c.version++
		c.expired = c.version
	})
}

// Bookmark sends a bookmark on all watches, as an API server does about once a minute.
func (c *Cluster) Bookmark() { c.update(func() { c.marks++ }) }

// Mute makes the API server accept all requests without an answer, and send nothing on watches,
// until it is unmuted. Then it sends what it held back.
func (c *Cluster) Mute(mute bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case mute && c.mute == nil:
		c.mute = make(chan struct{})
	case !mute && c.mute != nil:
		close(c.mute)
		c.mute = nil
	}
}

// await waits while the server is muted. It returns false when the client has disconnected.
func (c *Cluster) await(r *http.Request) bool {
	c.mu.Lock()
	mute := c.mute
	c.mu.Unlock()
	return mute == nil || await(r, mute)
}

// Require makes a bearer token mandatory from now on.
func (c *Cluster) Require(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = token
}

// Watches returns how many watches of pods there have been.
func (c *Cluster) Watches() int { return c.watchesOf(pods) }

// ConfigMapWatches returns how many watches of ConfigMaps there have been.
func (c *Cluster) ConfigMapWatches() int { return c.watchesOf(configMaps) }

func (c *Cluster) watchesOf(what resource) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watches[what]
}

// wanted returns the objects that a list or a watch selects, and the version of the cluster.
func (c *Cluster) wanted(what resource, by *http.Request) (found []object, version int) {
	for _, o := range c.objects {
		if o.isWanted(what, by) {
			found = append(found, o)
		}
	}
	return found, c.version
}
