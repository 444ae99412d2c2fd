// SPDX-License-Identifier: Apache-2.0

package event

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// maxNode bounds the agent's answer about its pods, in bytes. A pod takes about a thousand.
const maxNode = 16 << 20

// Pods asks the agent at a socket what it knows of the pods of a selection. The errors are those
// of [Enrol].
func Pods(ctx context.Context, socket string, of Selection) (Node, error) {
	query := url.Values{}
	for key, value := range map[string]string{"uid": of.UID, "namespace": of.Namespace, "name": of.Name} {
		if value != "" {
			query.Set(key, value)
		}
	}
	var node struct {
		Node
		Error *Error `json:"error"`
	}
	err := ask(ctx, socket, http.MethodGet, "/v1/pods?"+query.Encode(), nil, func(status int, body *json.Decoder) error {
		switch err := body.Decode(&node); {
		case err == nil && node.Error != nil:
			return node.Error
		case err != nil || status != http.StatusOK || node.Proxy.Connection == "":
			return notOfProtocol(status, err)
		}
		return nil
	})
	if err != nil {
		return Node{}, fmt.Errorf("ask the agent at %s about its pods: %w", socket, err)
	}
	return node.Node, nil
}

// Withdraw has the agent at a socket take the pods of a selection out of the mesh, and keep them
// out: all pods with the zero selection. It calls out for each pod that is out.
//
// The context should have a deadline: the agent is asked to answer a little before, with the pods
// that are still in the mesh. The error then has [CodeUnfinished], and the agent goes on with them.
// All other errors are those of [Enrol].
func Withdraw(ctx context.Context, socket string, of Selection, out func(PodState)) (left []PodState, err error) {
	r := withdrawal{All: of == Selection{}, UID: of.UID, Namespace: of.Namespace, Name: of.Name}
	if deadline, is := ctx.Deadline(); is {
		r.Timeout = (time.Until(deadline) * 9 / 10).String()
	}
	body, err := json.Marshal(r)
	if err == nil {
		err = ask(ctx, socket, http.MethodPost, "/v1/withdraw", body, func(status int, lines *json.Decoder) error {
			left, err = readProgress(status, lines, out)
			return err
		})
	}
	if err != nil {
		return left, fmt.Errorf("have the agent at %s withdraw pods: %w", socket, err)
	}
	return left, nil
}

// readProgress reads lines until the last one.
func readProgress(status int, lines *json.Decoder, out func(PodState)) (left []PodState, err error) {
	for {
		var line progress
		if err := lines.Decode(&line); err != nil {
			return left, notOfProtocol(status, err)
		}
		switch {
		case line.Error != nil:
			return left, line.Error
		case line.Done:
			return left, nil
		case line.Out != nil:
			out(*line.Out)
		case line.Left != nil:
			left = append(left, *line.Left)
		}
	}
}

// Readmit ends all withdrawals at the agent at a socket. The errors are those of [Enrol].
func Readmit(ctx context.Context, socket string) error {
	err := ask(ctx, socket, http.MethodPost, "/v1/readmit", nil, func(status int, lines *json.Decoder) error {
		_, err := readProgress(status, lines, func(PodState) {})
		return err
	})
	if err != nil {
		return fmt.Errorf("have the agent at %s readmit pods: %w", socket, err)
	}
	return nil
}

// notOfProtocol returns the error about an answer that this protocol does not have. An older agent,
// for example, gives one.
func notOfProtocol(status int, cause error) error {
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	if status == http.StatusNotFound {
		return &Error{CodeProtocol, "the agent does not know this request: it is of another version"}
	}
	return &Error{CodeProtocol, fmt.Sprintf("the answer with status %d is none of this protocol: %v", status, cause)}
}

// ask sends a request, and has the answer read.
func ask(ctx context.Context, socket, method, path string, body []byte, read func(status int, body *json.Decoder) error) error {
	return exchange(ctx, socket, method, path, body, nil, func(status int, answer io.Reader) error {
		return read(status, json.NewDecoder(io.LimitReader(answer, maxNode)))
	})
}
