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

// handover is the body of a request to /v1/handover.
type handover struct {
	Started string `json:"started"`
}

// HandOver asks the process that serves a socket to end its work, because this process takes its
// place. Started is when this process was started, since the boot of the node: the process that was
// started last serves.
//
// Without an error the other one has agreed, and ends its work soon. An [*Error] with [CodeRefused]
// means that it was started later. Other errors are like those of [Enrol].
func HandOver(ctx context.Context, socket string, started time.Duration) error {
	body, err := json.Marshal(handover{started.String()})
	if err == nil {
		err = ask(ctx, socket, http.MethodPost, "/v1/handover", body, func(status int, lines *json.Decoder) error {
			_, err := readProgress(status, lines, func(PodState) {})
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("ask the agent at %s to hand over: %w", socket, err)
	}
	return nil
}

// handOver answers /v1/handover.
func (s *Server) handOver(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	o := Outcome{Path: r.URL.Path, Status: http.StatusOK}
	started, err := readHandover(w, r)
	if err != nil {
		o.Status, o.Err = http.StatusBadRequest, &Error{CodeRequest, fmt.Sprintf("invalid request: %v", err)}
	} else if o.Err = s.options.HandOver(started); o.Err != nil {
		o.Status = http.StatusInternalServerError
	}
	answer := progress{Done: true}
	if o.Err != nil {
		answer = progress{Error: errorOf(o.Err)}
	}
	writeJSON(w, o.Status, answer)
	o.Duration = time.Since(start)
	s.options.Observe(o)
}

func readHandover(w http.ResponseWriter, r *http.Request) (started time.Duration, err error) {
	body, err := readBody(w, r)
	if err != nil {
		return 0, err
	}
	var h handover
	if err := json.Unmarshal(body, &h); err != nil {
		return 0, err
	}
	started, err = time.ParseDuration(h.Started)
	if err == nil && started <= 0 {
		err = errors.New("it does not say since when the other process runs")
	}
	return started, err
}
