// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Handler returns the API server.
func (c *Cluster) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, pods) })
	const onePod = "/api/v1/namespaces/{namespace}/pods/{name}"
	mux.HandleFunc("GET "+onePod, c.get)
	mux.HandleFunc("DELETE "+onePod, c.write(c.remove))
	mux.HandleFunc("PATCH "+onePod+"/status", c.write(c.patchStatus))
	mux.HandleFunc("POST "+onePod+"/eviction", c.write(c.evict))
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/configmaps", c.serveConfigMaps)
	mux.HandleFunc("GET "+namespacesPath, func(w http.ResponseWriter, r *http.Request) { c.serveMetadata(w, r, namespaces) })
	mux.HandleFunc("GET /api/v1/nodes/{name}", c.getNode)
	mux.HandleFunc("PATCH /api/v1/nodes/{name}", c.patchNode)
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/events", c.write(c.tellOf))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept := &remembered{ResponseWriter: w}
		c.answerBy(mux, kept, r)
		if r.Method != http.MethodGet {
			c.mu.Lock()
			c.writes = append(c.writes, Write{r.Method, r.URL.Path, time.Now(), kept.status})
			c.mu.Unlock()
		}
	})
}

func (c *Cluster) answerBy(mux http.Handler, w http.ResponseWriter, r *http.Request) {
	if !c.await(r) {
		return
	}
	c.mu.Lock()
	refuse, token, answer := c.refuse, c.token, c.answer
	c.mu.Unlock()
	if refuse == 0 && answer != nil {
		refuse = answer(r)
	}
	switch {
	case refuse != 0:
		fail(w, refuse)
	case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
		fail(w, http.StatusUnauthorized)
	default:
		mux.ServeHTTP(w, r)
	}
}

// remembered records the answer's status.
type remembered struct {
	http.ResponseWriter
	status int
}

func (r *remembered) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets an http.ResponseController flush.
func (r *remembered) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// fail answers with a Status, with the reason by which clients of Kubernetes distinguish errors
// (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/).
func fail(w http.ResponseWriter, status int) {
	reason := map[int]string{
		http.StatusUnauthorized: "Unauthorized", http.StatusForbidden: "Forbidden", http.StatusNotFound: "NotFound",
		http.StatusConflict: "Conflict", http.StatusTooManyRequests: "TooManyRequests", http.StatusGone: "Expired",
		http.StatusUnprocessableEntity: "Invalid",
	}[status]
	details := "{}"
	switch {
	case status == statusExists:
		status, reason = http.StatusConflict, "AlreadyExists"
	case status == statusImmutable:
		status, reason, details = http.StatusUnprocessableEntity, "Invalid", `{"causes":[{"reason":"FieldValueInvalid","field":"metadata.uid"}]}`
	case reason == "":
		reason = "InternalError"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d,"details":%s}`,
		http.StatusText(status), reason, status, details)
}

func (c *Cluster) get(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	p, found := c.pods[r.PathValue("namespace")+"/"+r.PathValue("name")]
	c.mu.Unlock()
	if !found {
		fail(w, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprint(w, p.json())
}

// resource is that of a list or a watch.
type resource string

const (
	pods       resource = "pods"
	configMaps resource = "configmaps"
	namespaces resource = "namespaces"
)

// namespacesPath is where namespaces are listed and watched.
const namespacesPath = "/api/v1/namespaces"

// kind returns that of the objects in the answers.
func (r resource) kind() string {
	if r == pods {
		return "Pod"
	}
	return "PartialObjectMetadata"
}

func (r resource) apiVersion() string {
	if r == pods {
		return "v1"
	}
	return "meta.k8s.io/v1"
}

// endsWith reports whether watches end when all requests are answered with a status. Like in the
// API server, watches of ConfigMaps do not check the client again.
func (r resource) endsWith(status int) bool {
	return status == http.StatusServiceUnavailable || status != 0 && r != configMaps
}

// serve answers a list or a watch.
func (c *Cluster) serve(w http.ResponseWriter, r *http.Request, what resource) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "true" {
		c.watch(w, r, what)
		return
	}
	c.mu.Lock()
	found, version := c.wanted(r)
	c.mu.Unlock()
	_, _ = fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[`,
		what.kind(), what.apiVersion(), version)
	for i, o := range found {
		if i > 0 {
			_, _ = fmt.Fprint(w, ",")
		}
		_, _ = fmt.Fprint(w, o.json())
	}
	_, _ = fmt.Fprint(w, "]}")
}

// watch sends the events after a version, and first the existing objects if the request wants them.
func (c *Cluster) watch(w http.ResponseWriter, r *http.Request, what resource) {
	next, marks, since := c.begin(w, r, what)
	for http.NewResponseController(w).Flush() == nil && c.await(r) {
		c.mu.Lock()
		news, changed, refuse, marked, version := c.events[next:], c.changed, c.refuse, c.marks > marks, c.version
		expired := c.expired > since
		next, marks = next+len(news), c.marks
		c.mu.Unlock()
		if what.endsWith(refuse) {
			return
		}
		if expired {
			_, _ = fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`)
			return
		}
		for _, e := range news {
			if e.isWanted(r) {
				send(w, e.kind, e.object)
			}
		}
		if marked && r.URL.Query().Get("allowWatchBookmarks") == "true" {
			what.bookmark(w, version, "")
		}
		if len(news) == 0 && !marked && !await(r, changed) {
			return
		}
	}
}

// await waits for a change, and returns false when the client has disconnected.
func await(r *http.Request, changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	case <-r.Context().Done():
		return false
	}
}

// begin sends the initial events. It returns the number of the next event, how many bookmarks there
// have been, and the version since which the watch has what changes.
func (c *Cluster) begin(w http.ResponseWriter, r *http.Request, what resource) (next, marks, since int) {
	c.mu.Lock()
	c.watches[what]++
	found, version := c.wanted(r)
	next, marks = len(c.events), c.marks
	since, _ = strconv.Atoi(r.URL.Query().Get("resourceVersion")) // 0 without a version
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	for !initial && next > 0 && c.events[next-1].at() > since {
		next--
	}
	if initial || since == 0 {
		since = version
	}
	c.mu.Unlock()
	if initial {
		for _, o := range found {
			send(w, "ADDED", o)
		}
		what.bookmark(w, version, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
	}
	return next, marks, since
}

func (r resource) bookmark(w http.ResponseWriter, version int, more string) {
	const event = `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"%s}}}`
	_, _ = fmt.Fprintf(w, event+"\n", r.kind(), r.apiVersion(), version, more)
}

func send(w http.ResponseWriter, kind string, o object) {
	_, _ = fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", kind, o.json())
}
