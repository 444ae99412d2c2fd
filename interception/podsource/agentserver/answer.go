// SPDX-License-Identifier: Apache-2.0

package agentserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
)

// requestError is why a request failed, and how to answer it.
type requestError struct {
	status  int
	refusal protocol.Refusal
	err     error // for the agent's own log; nil when the client alone is to blame
}

func refuse(status int, reason protocol.Reason, message string) *requestError {
	return &requestError{status: status, refusal: protocol.Refusal{Reason: reason, Message: message}}
}

// failed is for an error of a source or a sink.
func failed(err error) *requestError {
	return &requestError{http.StatusInternalServerError, protocol.Refusal{Reason: protocol.ReasonFailed, Message: err.Error()}, err}
}

// answering makes a handler that checks the peer, bounds the time, and answers in JSON.
func (s Server) answering(handle func(*http.Request) (any, *requestError)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeoutCause(r.Context(), workWithin, errTooLong)
		defer cancel()
		var answer any
		failure := refusedPeer(ctx)
		if failure == nil {
			r.Body = http.MaxBytesReader(w, r.Body, protocol.MaxBody)
			answer, failure = handle(r.WithContext(ctx))
		}
		if failure != nil && failure.err != nil {
			s.report(fmt.Errorf("%s %s: %w", r.Method, protocol.Quoted(r.URL.Path), failure.err))
		}
		s.write(w, r, answer, failure)
	})
}

func refusedPeer(ctx context.Context) *requestError {
	err, found := ctx.Value(peerKey{}).(error)
	if !found {
		return nil
	}
	failure := refuse(http.StatusForbidden, protocol.ReasonForbidden, err.Error())
	failure.err = err
	return failure
}

func (s Server) write(w http.ResponseWriter, r *http.Request, answer any, failure *requestError) {
	status := http.StatusOK
	switch {
	case failure != nil:
		status, answer = failure.status, protocol.ErrorAnswer{Error: failure.refusal}
	case answer == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	data, err := json.Marshal(answer)
	if err != nil {
		s.report(fmt.Errorf("%s %s: %w", r.Method, protocol.Quoted(r.URL.Path), err))
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // a client that is gone needs no answer
}

// decodeBody ignores fields that it doesn't know: a later client sent them.
func decodeBody(r *http.Request, to any) *requestError {
	data, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refuse(http.StatusRequestEntityTooLarge, protocol.ReasonTooLarge, fmt.Sprintf("a request may have %d bytes", tooLarge.Limit))
	case err != nil:
		return refuse(http.StatusBadRequest, protocol.ReasonBadRequest, err.Error())
	}
	if err := json.Unmarshal(data, to); err != nil {
		return refuse(http.StatusBadRequest, protocol.ReasonBadRequest, err.Error())
	}
	return nil
}
