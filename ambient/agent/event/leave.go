// SPDX-License-Identifier: Apache-2.0

package event

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Leaver gives up pods whose sandbox ends. An adapter of agent.Agent is one.
type Leaver interface {
	// Leave gives a pod's sandbox up, if the agent holds this very sandbox, and reports whether it
	// did so. The file is the sandbox's namespace, which the caller closes; it is nil if the
	// runtime has named none, and the sandbox is then known by Pod.Container alone. If the context
	// ends before, the agent goes on. An [*Error] chooses the code of the answer.
	Leave(ctx context.Context, pod Pod, namespace *os.File) (held bool, err error)
}

// departure is the body of an answer to /v1/leave. Held is missing if there is an error.
type departure struct {
	Held  *bool  `json:"held,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// Leave tells the agent at a socket that the container runtime ends a pod's sandbox. The namespace
// is that of the sandbox; nil if it cannot be opened any more. The caller still owns it.
//
// Without an error the agent holds no address of the sandbox any more. Held reports that it was the
// agent's: one that the agent does not know, or that another one has replaced, changes nothing. The
// context should have a deadline. The errors are those of [Enrol].
func Leave(ctx context.Context, socket string, pod Pod, namespace *os.File) (held bool, err error) {
	body, err := encodeRequest(ctx, pod)
	if err == nil {
		err = exchange(ctx, socket, http.MethodPost, "/v1/leave", body, namespace, func(status int, answer io.Reader) error {
			held, err = parseDeparture(status, answer)
			return err
		})
	}
	if err != nil {
		return false, fmt.Errorf("tell the agent at %s that the sandbox of pod %s ends: %w", socket, pod, err)
	}
	return held, nil
}

func parseDeparture(status int, answer io.Reader) (held bool, err error) {
	var d departure
	switch err := json.NewDecoder(io.LimitReader(answer, maxBody)).Decode(&d); {
	case err == nil && d.Error != nil && d.Error.Code != "":
		return false, d.Error
	case err != nil || status != http.StatusOK || d.Held == nil:
		return false, notOfProtocol(status, err)
	}
	return *d.Held, nil
}

// leave answers /v1/leave.
func (s *Server) leave(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	o := Outcome{Path: r.URL.Path, Status: http.StatusOK}
	timeout, namespace, err := readDeparture(w, r, &o.Pod)
	if namespace != nil {
		defer namespace.Close() //nolint:errcheck // nothing was written
	}
	var answer departure
	if err != nil {
		o.Status, o.Err = http.StatusBadRequest, &Error{CodeRequest, fmt.Sprintf("invalid request: %v", err)}
	} else {
		ctx, cancel := context.WithTimeout(r.Context(), min(cmp.Or(timeout, s.options.Timeout), s.options.Timeout))
		defer cancel()
		var held bool
		if held, o.Err = s.options.Leaver.Leave(ctx, o.Pod, namespace); o.Err != nil {
			o.Status = http.StatusInternalServerError
		}
		answer.Held = &held
	}
	if o.Err != nil {
		answer = departure{Error: errorOf(o.Err)}
	}
	writeJSON(w, o.Status, answer)
	o.Duration = time.Since(start)
	s.options.Observe(o)
}

// readDeparture reads a request to /v1/leave. The caller closes the namespace, if there is one.
func readDeparture(w http.ResponseWriter, r *http.Request, pod *Pod) (timeout time.Duration, namespace *os.File, err error) {
	body, err := readBody(w, r)
	namespace = connectionOf(r.Context()).take()
	if err == nil {
		*pod, timeout, err = parseRequest(body)
	}
	if err == nil && namespace == nil && pod.Container == "" {
		err = errors.New("the request names no sandbox: it has neither a descriptor nor the id of a container")
	}
	return timeout, namespace, err
}
