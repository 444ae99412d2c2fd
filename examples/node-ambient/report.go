// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/ambient/agent/feed"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/examples/internal/ambientnews"
	"github.com/meshcni/meshcni/internal/footprint"
)

// reporter reports to the daemon, as lines of JSON. What has not changed is not reported again.
type reporter struct {
	log *slog.Logger
	// memory gives memory back some time after the last report, as a report means work; it may be nil.
	memory *footprint.Trimmer

	mu      sync.Mutex
	to      io.Writer
	pending []byte                     // lines that are not written yet
	pods    map[string]ambientnews.Pod // those that were reported, by UID
	warned  map[string]string          // what was logged of the pods' annotations, by UID
	node    ambientnews.Node
	began   bool         // node is reported
	proxies map[int]bool // the connections that said hello
}

// begin reports the node from now on, and whether its namespace captures the pods.
func (r *reporter) begin(onNode bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began, r.node.OnNode = true, onNode
	r.line(ambientnews.Line{Node: &r.node})
}

// standBy reports that another process serves the node. What was reported before is over.
func (r *reporter) standBy() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods, r.proxies, r.node, r.began = nil, nil, ambientnews.Node{}, false
	r.line(ambientnews.Line{StandsBy: true})
}

// pod reports what the agent says of a pod.
func (r *reporter) pod(p agent.Pod) {
	news := ambientnews.Pod{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name, Wanted: p.Wanted.Enrolled, Rules: p.Seen.Rules.String(), Proxy: p.Seen.Proxy.String(),
		Status: string(p.Seen.Status), Step: string(p.Step), Since: p.Since,
	}
	if p.Err != nil {
		news.Error = p.Err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warn(p)
	if r.pods[p.UID] == news {
		return
	}
	if r.pods == nil {
		r.pods = map[string]ambientnews.Pod{}
	}
	r.pods[p.UID] = news
	if news.Left() {
		delete(r.pods, p.UID)
		delete(r.warned, p.UID)
	}
	r.line(ambientnews.Line{Pod: &news})
}

// warn logs which annotations of a pod have no effect, once. The caller holds mu.
func (r *reporter) warn(p agent.Pod) {
	text := fmt.Sprint(p.Warnings)
	if len(p.Warnings) == 0 || text == r.warned[p.UID] {
		return
	}
	if r.warned == nil {
		r.warned = map[string]string{}
	}
	r.warned[p.UID] = text
	for _, warning := range p.Warnings {
		r.log.Warn("an annotation of a pod has no effect", "pod", p.Namespace+"/"+p.Name, "annotation", warning.String())
	}
}

// feed reports what has changed by an event of the feed.
func (r *reporter) feed(e feed.Event) {
	r.change(func(node *ambientnews.Node) {
		switch e.Kind { //nolint:exhaustive // the others are about pods
		case feed.Connected:
			node.Feed = ""
		case feed.Completed:
			node.Complete = true
		case feed.Disconnected:
			node.Feed = "the connection has ended"
			if e.Err != nil {
				node.Feed = e.Err.Error()
			}
		}
	})
}

// count reports something that has happened.
func (r *reporter) count(c agent.Count) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line(ambientnews.Line{Count: &ambientnews.Count{What: string(c.What), Of: c.Of, Times: c.Times, Seconds: c.Duration.Seconds()}})
}

// proxy reports an answer of a proxy, and what has changed by an event of the proxies' connections.
func (r *reporter) proxy(e zds.Event) {
	if e.Request.Kind != 0 {
		answer := ambientnews.Count{What: ambientnews.Ack, Of: e.Request.Kind.String(), Times: 1}
		if e.Err != nil {
			answer.What = ambientnews.Nack
		}
		r.mu.Lock()
		r.line(ambientnews.Line{Count: &answer})
		r.mu.Unlock()
	}
	r.change(func(node *ambientnews.Node) {
		switch {
		case e.Hello != nil:
			if r.proxies == nil {
				r.proxies = map[int]bool{}
			}
			r.proxies[e.Connection] = true
		case e.Request.Kind == 0 && e.Err != nil:
			delete(r.proxies, e.Connection)
			node.Lost = e.Err.Error()
		}
		node.Proxies = len(r.proxies)
	})
}

// listens reports whether the proxy has its listeners, where the node's namespace captures the
// pods: the proxy does not connect.
func (r *reporter) listens(is bool) {
	r.change(func(node *ambientnews.Node) {
		if node.Proxies = 0; is {
			node.Proxies = 1
		}
	})
}

// host reports why the host is not as it should be; nil if it is.
func (r *reporter) host(err error) {
	r.change(func(node *ambientnews.Node) {
		if node.Host = ""; err != nil {
			node.Host = err.Error()
		}
	})
}

// hostError returns why the host is not as it should be; empty if it is.
func (r *reporter) hostError() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node.Host
}

// change reports the node, if that has changed.
func (r *reporter) change(by func(node *ambientnews.Node)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.node
	if by(&r.node); r.began && r.node != before {
		r.line(ambientnews.Line{Node: &r.node})
	}
}

// request reports a plugin's request. Others at the socket are those of operators.
func (r *reporter) request(o event.Outcome) {
	if o.Path != "/v1/enrol" && o.Path != "/cmdadd" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line(ambientnews.Line{Request: &ambientnews.Request{
		Status: o.Status, Captured: o.Err == nil && o.Decision.Capture, Seconds: o.Duration.Seconds(),
	}})
}

// afterwards is how long after an answer to the plugin the runtime starts the pod. What the process
// and the daemon do then does not delay the pod.
const afterwards = 30 * time.Millisecond

// line writes a line, some time later. The caller holds mu.
func (r *reporter) line(line ambientnews.Line) {
	if r.memory != nil {
		r.memory.Worked()
	}
	text, err := json.Marshal(line)
	if err != nil {
		r.log.Warn("can't report to the daemon", "error", err)
		return
	}
	if len(r.pending) == 0 {
		time.AfterFunc(afterwards, r.flush)
	}
	r.pending = append(append(r.pending, text...), '\n')
}

// flush writes the lines that wait.
func (r *reporter) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		return
	}
	if _, err := r.to.Write(r.pending); err != nil {
		r.log.Warn("can't report to the daemon", "error", err)
	}
	r.pending = nil
}
