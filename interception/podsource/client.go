// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/http1"
)

// client makes single requests of an API server.
type client struct {
	exchange
	connection connection
	userAgent  string
}

func newClient(c connection, userAgent string) *client {
	return &client{exchange{c.dial, c.token}, c, userAgent}
}

// server is the URL that the kubeconfig names.
func (c *client) server() string { return c.connection.server.String() }

func (c *client) pod(ctx context.Context, ref Ref) (interception.Pod, *Error) {
	base := *c.connection.server
	base.Path = strings.TrimSuffix(base.Path, "/") + "/" // JoinPath keeps a path relative that is empty
	target := base.JoinPath("api", "v1", "namespaces", ref.Namespace, "pods", ref.Name)
	request := http1.Request{Method: http1.MethodGet, Target: target.RequestURI(), Host: target.Host, Header: headers(c.userAgent)}
	if c.connection.token != "" {
		request.Header = append(request.Header, http1.Field{Name: "Authorization", Value: "Bearer " + c.connection.token})
	}
	if c.connection.forwards() {
		request.Target, request.Header = target.String(), append(request.Header, c.connection.proxyHeader()...)
	}
	status, answer, failure := c.do(ctx, request)
	if failure != nil {
		return interception.Pod{}, failure
	}
	if status != http1.StatusOK {
		return interception.Pod{}, c.refusal(status, answer)
	}
	return podFrom(answer, ref, c.quote)
}

const defaultUserAgent = "meshcni"

func headers(userAgent string) []http1.Field {
	return []http1.Field{{Name: "Accept", Value: "application/json"}, {Name: "User-Agent", Value: userAgent}}
}

// refusal tells what another status than 200 means. Kubernetes says more in a Status object.
func (c *client) refusal(status int, answer []byte) *Error {
	kind := ErrAnswer
	switch {
	case status == http1.StatusUnauthorized:
		kind = ErrUnauthorized
	case status == http1.StatusForbidden:
		kind = ErrForbidden
	case status == http1.StatusNotFound:
		kind = ErrNotFound
	case status == http1.StatusTooManyRequests || status >= http1.StatusInternalServerError:
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
