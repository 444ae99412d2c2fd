// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Handler is the API server.
func (c *Cluster) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/pods", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "true" {
			c.watch(w, r)
			return
		}
		c.list(w, r)
	})
	const onePod = "/api/v1/namespaces/{namespace}/pods/{name}"
	mux.HandleFunc("GET "+onePod, c.get)
	mux.HandleFunc("DELETE "+onePod, c.write(c.remove))
	mux.HandleFunc("PATCH "+onePod+"/status", c.write(c.patchStatus))
	mux.HandleFunc("POST "+onePod+"/eviction", c.write(c.evict))
	mux.HandleFunc("GET /api/v1/namespaces/{namespace}/configmaps", c.listConfigMaps)
	mux.HandleFunc("GET /api/v1/nodes/{name}", c.getNode)
	mux.HandleFunc("PATCH /api/v1/nodes/{name}", c.patchNode)
	mux.HandleFunc("POST /api/v1/namespaces/{namespace}/events", c.write(c.tellOf))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept := &remembered{ResponseWriter: w}
		c.serve(mux, kept, r)
		if r.Method != http.MethodGet {
			c.mu.Lock()
			c.writes = append(c.writes, Write{r.Method, r.URL.Path, time.Now(), kept.status})
			c.mu.Unlock()
		}
	})
}

func (c *Cluster) serve(mux http.Handler, w http.ResponseWriter, r *http.Request) {
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

// remembered knows what was answered.
type remembered struct {
	http.ResponseWriter
	status int
}

// WriteHeader remembers.
func (r *remembered) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is for those who flush.
func (r *remembered) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// fail answers with a Status, which has the reason that clients of Kubernetes know errors by
// (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/).
func fail(w http.ResponseWriter, status int) {
	reason := map[int]string{
		http.StatusUnauthorized: "Unauthorized", http.StatusForbidden: "Forbidden", http.StatusNotFound: "NotFound",
		http.StatusConflict: "Conflict", http.StatusTooManyRequests: "TooManyRequests",
	}[status]
	switch {
	case status == statusExists:
		status, reason = http.StatusConflict, "AlreadyExists"
	case reason == "":
		reason = "InternalError"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`,
		http.StatusText(status), reason, status)
}

// node is what the field selector asks for.
func node(r *http.Request) string {
	name, _ := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
	return name
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

func (c *Cluster) list(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	pods, version := c.on(node(r))
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[`, version)
	for i, p := range pods {
		if i > 0 {
			_, _ = fmt.Fprint(w, ",")
		}
		_, _ = fmt.Fprint(w, p.json())
	}
	_, _ = fmt.Fprint(w, "]}")
}

// watch sends what happens after a version, at first all there is when it is asked to.
func (c *Cluster) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	next, marks := c.begin(w, r)
	for http.NewResponseController(w).Flush() == nil && c.await(r) {
		c.mu.Lock()
		news, changed, refused, marked, version := c.events[next:], c.changed, c.refuse != 0, c.marks > marks, c.version
		next, marks = next+len(news), c.marks
		c.mu.Unlock()
		if refused {
			return
		}
		tellNews(w, r, news)
		if marked && r.URL.Query().Get("allowWatchBookmarks") == "true" {
			bookmark(w, version, "")
		}
		if len(news) == 0 && !marked && !await(r, changed) {
			return
		}
	}
}

// await waits for a change, and reports false when the client is gone.
func await(r *http.Request, changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	case <-r.Context().Done():
		return false
	}
}

// tellNews sends the changes that a watch asks for.
func tellNews(w http.ResponseWriter, r *http.Request, news []event) {
	for _, e := range news {
		if name := node(r); name == "" || e.Node == name {
			send(w, e.kind, e.stored)
		}
	}
}

// begin sends the initial events, and says which event is the next, and how many bookmarks there have been.
func (c *Cluster) begin(w http.ResponseWriter, r *http.Request) (next, marks int) {
	c.mu.Lock()
	c.watches++
	pods, version := c.on(node(r))
	next, marks = len(c.events), c.marks
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion")) // none is 0
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	for !initial && next > 0 && c.events[next-1].version > since {
		next--
	}
	c.mu.Unlock()
	if initial {
		for _, p := range pods {
			send(w, "ADDED", p)
		}
		bookmark(w, version, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
	}
	return next, marks
}

func bookmark(w http.ResponseWriter, version int, more string) {
	const event = `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s}}}`
	_, _ = fmt.Fprintf(w, event+"\n", version, more)
}

func send(w http.ResponseWriter, kind string, p stored) {
	_, _ = fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", kind, p.json())
}
