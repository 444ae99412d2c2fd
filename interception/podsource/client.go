// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/meshcni/meshcni/interception"
)

// client makes single requests of an API server.
type client struct {
	exchange
	connection connection
	userAgent  string
}

func newClient(c connection, userAgent string) *client {
	return &client{exchange{dial: c.dial, secret: c.token}, c, userAgent}
}

// server is the URL that the kubeconfig names.
func (c *client) server() string { return c.connection.server.String() }

func (c *client) pod(ctx context.Context, ref Ref) (interception.Pod, *Error) {
	target := c.connection.server.JoinPath("api", "v1", "namespaces", ref.Namespace, "pods", ref.Name)
	request, err := newRequest(ctx, http.MethodGet, target.String(), c.userAgent, nil)
	if err != nil {
		return interception.Pod{}, &Error{Kind: ErrUnreachable, Cause: err}
	}
	if c.connection.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.connection.token)
	}
	write := request.Write
	if c.connection.forwards() {
		c.connection.authorize(request)
		write = request.WriteProxy
	}
	text, err := encoded(write)
	if err != nil { // the server's URL has a host that no request can name
		return interception.Pod{}, &Error{Kind: ErrKubeconfig, Cause: fmt.Errorf("the cluster's server: %w", err)}
	}
	status, answer, failure := c.do(request, text)
	if failure != nil {
		return interception.Pod{}, failure
	}
	if status != http.StatusOK {
		return interception.Pod{}, c.refusal(status, answer)
	}
	return podFrom(answer, ref, c.quote)
}

const defaultUserAgent = "meshcni"

// refusal returns the error for a status other than 200. Kubernetes says more in a Status object.
func (c *client) refusal(status int, answer []byte) *Error {
	kind := ErrAnswer
	switch {
	case status == http.StatusUnauthorized:
		kind = ErrUnauthorized
	case status == http.StatusForbidden:
		kind = ErrForbidden
	case status == http.StatusNotFound:
		kind = ErrNotFound
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		kind = ErrServer
	}
	text := fmt.Sprintf("status %d", status)
	var object struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	}
	if json.Unmarshal(answer, &object) == nil && object.Kind == "Status" && object.Message != "" {
		text += ", " + c.quote(object.Message)
	}
	return &Error{Kind: kind, Cause: errors.New(text)}
}
