// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/meshcni/meshcni/interception"
)

// Bounds on what a server may send. etcd holds objects of 1.5 MiB by default.
const (
	maxAnswer  = 8 << 20
	maxHeader  = 64 << 10
	maxMessage = 512
)

// client makes single requests.
type client struct {
	connection connection
	transport  *http.Transport
}

func newClient(c connection) *client {
	var http1 http.Protocols
	http1.SetHTTP1(true)
	transport := &http.Transport{
		TLSClientConfig:        c.tls,
		Protocols:              &http1,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}
	if c.proxy != nil {
		transport.Proxy = http.ProxyURL(c.proxy)
	}
	return &client{c, transport}
}

func (c *client) close() { c.transport.CloseIdleConnections() }

// server is the URL that the kubeconfig names.
func (c *client) server() string { return c.connection.server.String() }

func (c *client) pod(ctx context.Context, ref Ref) (interception.Pod, *Error) {
	base := *c.connection.server
	base.Path = strings.TrimSuffix(base.Path, "/") + "/" // JoinPath keeps a path relative that is empty
	target := base.JoinPath("api", "v1", "namespaces", ref.Namespace, "pods", ref.Name)
	status, answer, failure := c.get(ctx, target)
	if failure != nil {
		return interception.Pod{}, failure
	}
	if status != http.StatusOK {
		return interception.Pod{}, c.refusal(status, answer)
	}
	return podFrom(answer, ref, c.quote)
}

// get asks the transport itself: redirects, cookies and proxies of the environment, which http.Client would add, have no place here.
func (c *client) get(ctx context.Context, target *url.URL) (status int, answer []byte, failure *Error) {
	request := (&http.Request{
		Method: http.MethodGet, URL: target, Host: target.Host,
		Header: http.Header{"Accept": {"application/json"}, "User-Agent": {"meshcni"}},
	}).WithContext(ctx)
	if c.connection.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.connection.token)
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return 0, nil, transportFailure(ctx, c.withoutCredential(err))
	}
	defer response.Body.Close() //nolint:errcheck // only read from
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil {
		err = ctx.Err() // closing the connection at the end of the time can look like the answer's end
	}
	if err != nil {
		return 0, nil, transportFailure(ctx, fmt.Errorf("the answer broke off: %w", c.withoutCredential(err)))
	}
	if len(answer) > maxAnswer {
		return 0, nil, &Error{Kind: ErrTooLarge, Cause: fmt.Errorf("more than %d bytes", maxAnswer)}
	}
	return response.StatusCode, answer, nil
}

// transportFailure tells why no answer came.
func transportFailure(ctx context.Context, err error) *Error {
	var untrusted *tls.CertificateVerificationError
	var network net.Error
	switch {
	case errors.As(err, &untrusted):
		return &Error{Kind: ErrUntrusted, Cause: untrusted.Err}
	case ctx.Err() != nil:
		return &Error{Kind: ErrTimeout, Cause: context.Cause(ctx)}
	case errors.As(err, &network) && network.Timeout():
		return &Error{Kind: ErrTimeout, Cause: err}
	default:
		return &Error{Kind: ErrUnreachable, Cause: err}
	}
}

// withoutCredential replaces an error that repeats the credential: net/http quotes what it can't read, and that may be our own request.
func (c *client) withoutCredential(err error) error {
	if c.connection.token == "" || !strings.Contains(err.Error(), c.connection.token) {
		return err
	}
	return errors.New(c.quote(err.Error()))
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

// quote makes text of an answer fit for an error: without the credential, which servers have been seen to repeat, printable, in
// quotes and bounded.
func (c *client) quote(text string) string {
	if c.connection.token != "" {
		text = strings.ReplaceAll(text, c.connection.token, "(credential)")
	}
	printable := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, text)
	if len(printable) > maxMessage {
		printable = strings.ToValidUTF8(printable[:maxMessage], "") + "..."
	}
	return `"` + printable + `"`
}
