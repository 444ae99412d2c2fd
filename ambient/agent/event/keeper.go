// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Keeper tells of the node's pods, and takes them out of the mesh. An adapter of agent.Agent is
// one.
type Keeper interface {
	// Pods returns what the agent knows of the pods of a selection.
	Pods(ctx context.Context, of Selection) (Node, error)
	// Withdraw takes the pods of a selection out of the mesh, and keeps them out. It calls out for
	// each pod that is out, and returns those that are not when the context ends, with an error. An
	// [*Error] chooses the code of the answer.
	Withdraw(ctx context.Context, of Selection, out func(PodState)) (left []PodState, err error)
	// Readmit ends all withdrawals.
	Readmit(ctx context.Context) error
}

// defaultWithdrawal is how long a withdrawal is waited for that names no time.
const defaultWithdrawal = time.Minute

// withdrawal is the body of a request to /v1/withdraw.
type withdrawal struct {
	All       bool   `json:"all,omitempty"`
	UID       string `json:"uid,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Timeout   string `json:"timeout,omitempty"`
}

// progress is a line of the answer.
type progress struct {
	Out   *PodState `json:"out,omitempty"`
	Left  *PodState `json:"left,omitempty"`
	Done  bool      `json:"done,omitempty"`
	Error *Error    `json:"error,omitempty"`
}

// parseWithdrawal reads which pods are meant, and how long the caller waits. All pods have to be
// named as such: a request that lacks a name must not end the mesh of a node.
func parseWithdrawal(body []byte) (of Selection, timeout time.Duration, err error) {
	var r withdrawal
	if err := json.Unmarshal(body, &r); err != nil {
		return Selection{}, 0, err
	}
	timeout = defaultWithdrawal
	if r.Timeout != "" {
		if timeout, err = time.ParseDuration(r.Timeout); err != nil || timeout <= 0 {
			return Selection{}, 0, fmt.Errorf("timeout %q is no time to wait, such as 60s", r.Timeout)
		}
	}
	of = Selection{UID: r.UID, Namespace: r.Namespace, Name: r.Name}
	named := r.UID != "" || r.Namespace != "" && r.Name != ""
	switch {
	case r.All && of != Selection{}:
		return Selection{}, 0, errors.New("the request names all pods and one of them")
	case !r.All && !named:
		return Selection{}, 0, errors.New("the request names neither all pods, nor one by its UID or by namespace and name")
	}
	return of, timeout, nil
}

// pods answers /v1/pods.
func (s *Server) pods(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	query := r.URL.Query()
	node, err := s.options.Keeper.Pods(r.Context(), Selection{UID: query.Get("uid"), Namespace: query.Get("namespace"), Name: query.Get("name")})
	o := Outcome{Path: r.URL.Path, Status: http.StatusOK, Err: err}
	var answer any = node
	if err != nil {
		o.Status, answer = http.StatusInternalServerError, Answer{Error: errorOf(err)}
	}
	writeJSON(w, o.Status, answer)
	o.Duration = time.Since(start)
	s.options.Observe(o)
}

// withdraw answers /v1/withdraw, a line for each pod as soon as it is out. If the caller goes, the
// agent goes on.
func (s *Server) withdraw(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	o := Outcome{Path: r.URL.Path, Status: http.StatusOK}
	defer func() {
		o.Duration = time.Since(start)
		s.options.Observe(o)
	}()
	body, err := readBody(w, r)
	var of Selection
	var timeout time.Duration
	if err == nil {
		of, timeout, err = parseWithdrawal(body)
	}
	if err != nil {
		o.Status, o.Err = http.StatusBadRequest, &Error{CodeRequest, fmt.Sprintf("invalid request: %v", err)}
		writeJSON(w, o.Status, progress{Error: errorOf(o.Err)})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	say := func(line progress) {
		_ = json.NewEncoder(w).Encode(line) // the caller may be gone
		_ = http.NewResponseController(w).Flush()
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	left, err := s.options.Keeper.Withdraw(ctx, of, func(pod PodState) { say(progress{Out: &pod}) })
	for i := range left {
		say(progress{Left: &left[i]})
	}
	if o.Err = err; err != nil {
		say(progress{Error: errorOf(err)})
		return
	}
	say(progress{Done: true})
}

// readmit answers /v1/readmit.
func (s *Server) readmit(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	o := Outcome{Path: r.URL.Path, Status: http.StatusOK, Err: s.options.Keeper.Readmit(r.Context())}
	answer := progress{Done: true}
	if o.Err != nil {
		o.Status, answer = http.StatusInternalServerError, progress{Error: errorOf(o.Err)}
	}
	writeJSON(w, o.Status, answer)
	o.Duration = time.Since(start)
	s.options.Observe(o)
}

// writeJSON writes an answer.
func writeJSON(w http.ResponseWriter, status int, answer any) {
	body, err := json.Marshal(answer)
	if err != nil {
		body = nil // no answer of the protocol, which the client says
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller may be gone
}
