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

// pod asks for the pod of a Ref.
func (c *client) pod(ctx context.Context, ref Ref) (interception.Pod, *Error) {
	answer, failure := c.get(ctx, ErrNotFound, "api", "v1", "namespaces", ref.Namespace, "pods", ref.Name)
	if failure != nil {
		return interception.Pod{}, failure
	}
	return podFrom(answer, ref, c.quote)
}

// namespaceLabels asks for the labels of a namespace.
func (c *client) namespaceLabels(ctx context.Context, namespace string) (map[string]string, *Error) {
	answer, failure := c.get(ctx, ErrNoNamespace, "api", "v1", "namespaces", namespace)
	if failure != nil {
		return nil, failure
	}
	return labelsFrom(answer, namespace, c.quote)
}

// get asks for the object at a path. The kind absent is that of a failure if there is none.
func (c *client) get(ctx context.Context, absent error, path ...string) ([]byte, *Error) {
	target := c.connection.server.JoinPath(path...)
	request, err := newRequest(ctx, http.MethodGet, target.String(), c.userAgent, nil)
	if err != nil {
		return nil, &Error{Kind: ErrUnreachable, Cause: err}
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
		return nil, &Error{Kind: ErrKubeconfig, Cause: fmt.Errorf("the cluster's server: %w", err)}
	}
	status, answer, failure := c.do(request, text)
	switch {
	case failure != nil:
		return nil, failure
	case status == http.StatusNotFound:
		return nil, c.refusal(absent, status, answer)
	case status != http.StatusOK:
		return nil, c.refusal(kindOfStatus(status), status, answer)
	}
	return answer, nil
}

const defaultUserAgent = "meshcni"

// kindOfStatus returns the kind of a failure by a status other than 200 and 404.
func kindOfStatus(status int) error {
	switch {
	case status == http.StatusUnauthorized:
		return ErrUnauthorized
	case status == http.StatusForbidden:
		return ErrForbidden
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return ErrServer
	default:
		return ErrAnswer
	}
}

// refusal returns the error for a status other than 200. Kubernetes says more in a Status object.
func (c *client) refusal(kind error, status int, answer []byte) *Error {
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
