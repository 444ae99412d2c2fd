// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"net/http"
	"sync"
)

// Cluster is an API server with pods. It is safe for concurrent use; create it with [New].
type Cluster struct {
	mu      sync.Mutex
	version int
	pods    map[string]stored
	maps    map[string]configMap
	spaces  map[string]namespace
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

// stored is a pod and the version of its last change.
type stored struct {
	Pod
	version int
}

// object is a pod, a ConfigMap or a namespace in the API server.
type object interface {
	// isWanted reports whether a list or a watch selects the object.
	isWanted(by *http.Request) bool
	json() string
	at() (version int)
}

// event is a change.
type event struct {
	kind string // ADDED, MODIFIED or DELETED
	object
}

// New returns an empty cluster.
func New() *Cluster {
	return &Cluster{
		version: 1, pods: map[string]stored{}, maps: map[string]configMap{}, spaces: map[string]namespace{}, nodes: map[string][]string{},
		changed: make(chan struct{}), watches: map[resource]int{},
	}
}

// Put creates or changes pods.
func (c *Cluster) Put(pods ...Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range pods {
		c.put(p)
	}
	c.notify()
}

func (c *Cluster) put(p Pod) {
	key, kind := p.Namespace+"/"+p.Name, "ADDED"
	if _, found := c.pods[key]; found {
		kind = "MODIFIED"
	}
	c.version++
	c.pods[key] = stored{p, c.version}
	c.events = append(c.events, event{kind, c.pods[key]})
}

// Change changes a pod, if it exists, whatever else is changing it.
func (c *Cluster) Change(namespace, name string, do func(p *Pod)) (found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, found := c.pods[namespace+"/"+name]
	if found {
		do(&p.Pod)
		c.put(p.Pod)
		c.notify()
	}
	return found
}

// Delete deletes a pod.
func (c *Cluster) Delete(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delete(namespace, name)
	c.notify()
}

func (c *Cluster) delete(namespace, name string) {
	key := namespace + "/" + name
	c.version++
	gone := c.pods[key]
	gone.version = c.version
	delete(c.pods, key)
	c.events = append(c.events, event{"DELETED", gone})
}

// Refuse answers every request with the status, and ends all watches; those of ConfigMaps only with
// 503. 0 ends the refusal.
func (c *Cluster) Refuse(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = status
	c.notify()
}

// Expire ends all watches with 410, and so each one that is to go on from an earlier version, as an
// API server does that has forgotten what has changed since.
func (c *Cluster) Expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	c.expired = c.version
	c.notify()
}

// Bookmark sends a bookmark on all watches, as an API server does about once a minute.
func (c *Cluster) Bookmark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.marks++
	c.notify()
}

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

func (c *Cluster) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// wanted returns the objects that a list or a watch selects, and the version of the cluster.
func (c *Cluster) wanted(by *http.Request) (found []object, version int) {
	for _, p := range c.pods {
		if p.isWanted(by) {
			found = append(found, p)
		}
	}
	for _, m := range c.maps {
		if m.isWanted(by) {
			found = append(found, m)
		}
	}
	for _, n := range c.spaces {
		if n.isWanted(by) {
			found = append(found, n)
		}
	}
	return found, c.version
}
