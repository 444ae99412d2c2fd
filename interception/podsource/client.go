// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// client makes single requests of an API server.
type client struct {
	exchange
	connection connection
}

func newClient(c connection) *client {
	if c.proxy == nil {
		return &client{exchange{oneRequest{c.dial}, c.token}, c}
	}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	transport := &http.Transport{
		Protocols: &http1, DisableCompression: true, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader,
		TLSClientConfig: c.tls, Proxy: http.ProxyURL(c.proxy),
	}
	return &client{exchange{transport, c.token}, c}
}

// server is the URL that the kubeconfig names.
func (c *client) server() string { return c.connection.server.String() }

func (c *client) pod(ctx context.Context, ref Ref) (interception.Pod, *Error) {
	base := *c.connection.server
	base.Path = strings.TrimSuffix(base.Path, "/") + "/" // JoinPath keeps a path relative that is empty
	target := base.JoinPath("api", "v1", "namespaces", ref.Namespace, "pods", ref.Name)
	request := &http.Request{Method: http.MethodGet, URL: target, Host: target.Host, Header: headers()}
	if c.connection.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.connection.token)
	}
	status, answer, failure := c.do(ctx, request)
	if failure != nil {
		return interception.Pod{}, failure
	}
	if status != http.StatusOK {
		return interception.Pod{}, c.refusal(status, answer)
	}
	return podFrom(answer, ref, c.quote)
}

func headers() http.Header {
	return http.Header{"Accept": {"application/json"}, "User-Agent": {"meshcni"}}
}

// refusal tells what another status than 200 means. Kubernetes says more in a Status object.
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
