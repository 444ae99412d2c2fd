// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Handler returns the API server.
func (c *Cluster) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, pods) })
	const onePod = "/api/v1/namespaces/{namespace}/pods/{name}"
	mux.HandleFunc("GET "+onePod, c.get)
	mux.HandleFunc("DELETE "+onePod, c.write(c.delete))
	mux.HandleFunc("PATCH "+onePod+"/status", c.write(c.patchStatus))
	mux.HandleFunc("POST "+onePod+"/eviction", c.write(c.evict))
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/configmaps", func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=") {
			fail(w, http.StatusNotAcceptable)
			return
		}
		c.serveMetadata(w, r, configMaps)
	})
	mux.HandleFunc("GET /api/v1/namespaces", func(w http.ResponseWriter, r *http.Request) { c.serveMetadata(w, r, namespaces) })
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
	send(w, status, fmt.Sprintf(
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d,"details":%s}`,
		http.StatusText(status), reason, status, details))
}

// podOf returns the key of the pod that a request names.
func podOf(r *http.Request) key { return key{pods, r.PathValue("namespace"), r.PathValue("name")} }

func (c *Cluster) get(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	pod, found := c.objects[podOf(r)]
	c.mu.Unlock()
	if !found {
		fail(w, http.StatusNotFound)
		return
	}
	send(w, http.StatusOK, pod.json())
}

// send answers with JSON. The client may be gone.
func send(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// serveMetadata answers a list or a watch only in the metadata-only form.
func (c *Cluster) serveMetadata(w http.ResponseWriter, r *http.Request, what resource) {
	form := what.kind()
	if r.URL.Query().Get("watch") != "true" {
		form += "List"
	}
	if !strings.Contains(r.Header.Get("Accept"), "as="+form+";g=meta.k8s.io;v=v1") {
		fail(w, http.StatusNotAcceptable)
		return
	}
	c.serve(w, r, what)
}

// serve answers a list or a watch.
func (c *Cluster) serve(w http.ResponseWriter, r *http.Request, what resource) {
	if r.URL.Query().Get("watch") == "true" {
		c.watch(w, r, what)
		return
	}
	c.mu.Lock()
	found, version := c.wanted(what, r)
	c.mu.Unlock()
	items := make([]string, len(found))
	for i, o := range found {
		items[i] = o.json()
	}
	send(w, http.StatusOK, fmt.Sprintf(`{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[%s]}`,
		what.kind(), what.apiVersion(), version, strings.Join(items, ",")))
}

// watch sends the events after a version, and first the existing objects if the request wants them.
func (c *Cluster) watch(w http.ResponseWriter, r *http.Request, what resource) {
	w.Header().Set("Content-Type", "application/json")
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
			if e.isWanted(what, r) {
				e.send(w)
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
	found, version := c.wanted(what, r)
	next, marks = len(c.events), c.marks
	since, _ = strconv.Atoi(r.URL.Query().Get("resourceVersion")) // 0 without a version
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	for !initial && next > 0 && c.events[next-1].version > since {
		next--
	}
	if initial || since == 0 {
		since = version
	}
	c.mu.Unlock()
	if initial {
		for _, o := range found {
			event{"ADDED", o}.send(w)
		}
		what.bookmark(w, version, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
	}
	return next, marks, since
}

func (r resource) bookmark(w http.ResponseWriter, version int, more string) {
	const event = `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"%s}}}`
	_, _ = fmt.Fprintf(w, event+"\n", r.kind(), r.apiVersion(), version, more)
}

func (e event) send(w http.ResponseWriter) {
	_, _ = fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", e.kind, e.json())
}
