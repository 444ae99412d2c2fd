// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"
)

// Write is a modifying request.
type Write struct {
	// Method and Path are those of the request.
	Method, Path string
	// Time is when the request arrived.
	Time time.Time
	// Status is the status of the answer.
	Status int
}

// Event is an event of a pod.
type Event struct {
	Namespace, Name            string
	Pod, PodUID                string
	Reason, Message, Component string
}

// Writes returns all modifying requests, in their order.
func (c *Cluster) Writes() []Write {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.writes)
}

// Events returns all events, in their order.
func (c *Cluster) Events() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.told)
}

// Pod returns the current state of a pod.
func (c *Cluster) Pod(namespace, name string) (pod Pod, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, found := c.objects[key{pods, namespace, name}]
	return o.pod, found
}

// Answer calls a function for every request, which may block. Unless it returns 0, its status is
// the answer.
func (c *Cluster) Answer(first func(*http.Request) (status int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = first
}

// Protect refuses evictions (429), as a disruption budget does, until it is called with false.
func (c *Cluster) Protect(protected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.protected = protected
}

const (
	// statusExists is answered as 409 with another reason than a conflict.
	statusExists = -http.StatusConflict
	// statusImmutable is answered as 422 about the UID.
	statusImmutable = -http.StatusUnprocessableEntity
)

// preconditions are those of an object's metadata, or of DeleteOptions.
type preconditions struct {
	Name            string             `json:"name"`
	UID             string             `json:"uid"`
	ResourceVersion string             `json:"resourceVersion"`
	Labels          map[string]*string `json:"labels"`
	Annotations     map[string]*string `json:"annotations"`
}

// body is the relevant part of all requests that change something.
type body struct {
	Metadata       preconditions `json:"metadata"`
	Preconditions  preconditions `json:"preconditions"`
	DeleteOptions  struct{ Preconditions preconditions }
	Reason         string `json:"reason"`
	Message        string `json:"message"`
	InvolvedObject struct{ Name, UID string }
	Source         struct{ Component string }
}

const maxBody = 1 << 20

// write answers a modifying request with the status that do returns, and records it.
func (c *Cluster) write(do func(r *http.Request, b body) (status int)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var b body
		data, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
		if err == nil {
			err = json.Unmarshal(data, &b)
		}
		status := http.StatusBadRequest
		if err == nil {
			status = do(r, b)
		}
		if status != http.StatusOK && status != http.StatusCreated {
			fail(w, status)
			return
		}
		send(w, status, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	}
}

// change modifies the pod that a request names, if the preconditions hold.
func (c *Cluster) change(r *http.Request, want preconditions, do func(o object)) (status int) {
	c.update(func() {
		o, found := c.objects[podOf(r)]
		switch {
		case !found:
			status = http.StatusNotFound
		case want.UID != "" && want.UID != o.pod.UID, want.ResourceVersion != "" && want.ResourceVersion != version(o.version):
			status = http.StatusConflict
		default:
			status = http.StatusOK
			do(o)
		}
	})
	return status
}

// patchStatus merges labels and annotations. To the API server, another UID is a change of a field
// that does not change, unless the version already is in conflict.
func (c *Cluster) patchStatus(r *http.Request, b body) (status int) {
	if r.Header.Get("Content-Type") != "application/merge-patch+json" {
		return http.StatusUnsupportedMediaType
	}
	status = c.change(r, b.Metadata, func(o object) {
		p := o.pod
		p.Labels, p.Annotations = merged(p.Labels, b.Metadata.Labels), merged(p.Annotations, b.Metadata.Annotations)
		c.putPod(p)
	})
	if status == http.StatusConflict && b.Metadata.ResourceVersion == "" {
		return statusImmutable
	}
	return status
}

// merged returns a JSON merge patch's result (RFC 7396).
func merged(texts map[string]string, patch map[string]*string) map[string]string {
	result := map[string]string{}
	maps.Copy(result, texts)
	for key, value := range patch {
		if delete(result, key); value != nil {
			result[key] = *value
		}
	}
	return result
}

func (c *Cluster) delete(r *http.Request, b body) (status int) {
	return c.change(r, b.Preconditions, func(o object) { c.remove(o.key) })
}

func (c *Cluster) evict(r *http.Request, b body) (status int) {
	c.mu.Lock()
	protected := c.protected
	c.mu.Unlock()
	if protected {
		return http.StatusTooManyRequests
	}
	return c.change(r, b.DeleteOptions.Preconditions, func(o object) { c.remove(o.key) })
}

func (c *Cluster) tellOf(r *http.Request, b body) (status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := Event{
		Namespace: r.PathValue("namespace"), Name: b.Metadata.Name, Pod: b.InvolvedObject.Name, PodUID: b.InvolvedObject.UID,
		Reason: b.Reason, Message: b.Message, Component: b.Source.Component,
	}
	if slices.ContainsFunc(c.told, func(o Event) bool { return o.Namespace == e.Namespace && o.Name == e.Name }) {
		return statusExists
	}
	c.told = append(c.told, e)
	return http.StatusCreated
}
