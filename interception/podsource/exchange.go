// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
	"github.com/meshcni/meshcni/internal/http1"
)

// Bounds on what a server may send. etcd holds objects of 1.5 MiB by default.
const (
	maxAnswer = 8 << 20
	maxHeader = 64 << 10
)

// exchange is a conversation with one server.
type exchange struct {
	dial   func(context.Context) (net.Conn, error)
	secret string // the credential, which no error may repeat; empty when there is none
}

// bounds are those of every answer.
func bounds() http1.Client { return http1.Client{MaxHeader: maxHeader, MaxBody: maxAnswer} }

// do makes one request on a connection of its own, in this goroutine: redirects, cookies and proxies of the environment have no place here.
func (x exchange) do(ctx context.Context, request http1.Request) (status int, answer []byte, failure *Error) {
	connection, err := x.dial(ctx)
	if err != nil {
		return 0, nil, transportFailure(ctx, x.withoutSecret(err))
	}
	response, err := bounds().Do(ctx, connection, request)
	if err == nil {
		err = ctx.Err() // closing the connection at the end of the time can look like the answer's end
	}
	switch {
	case errors.Is(err, http1.ErrTooLarge):
		return 0, nil, &Error{Kind: ErrTooLarge, Cause: fmt.Errorf("more than %d bytes", maxAnswer)}
	case err != nil:
		return 0, nil, transportFailure(ctx, x.withoutSecret(err))
	}
	return response.Status, response.Body, nil
}

// transportFailure tells why no answer came.
func transportFailure(ctx context.Context, err error) *Error {
	var untrusted *tls.CertificateVerificationError
	var peer *PeerError
	var network net.Error
	switch {
	case errors.As(err, &untrusted):
		return &Error{Kind: ErrUntrusted, Cause: untrusted.Err}
	case errors.As(err, &peer):
		return &Error{Kind: ErrUntrusted, Cause: peer}
	case ctx.Err() != nil:
		return &Error{Kind: ErrTimeout, Cause: context.Cause(ctx)}
	case errors.As(err, &network) && network.Timeout():
		return &Error{Kind: ErrTimeout, Cause: err}
	default:
		return &Error{Kind: ErrUnreachable, Cause: err}
	}
}

// withoutSecret replaces an error that repeats the credential, or anything at length: what can't be read may be our own request.
func (x exchange) withoutSecret(err error) error {
	var malformed *http1.MalformedError
	if errors.As(err, &malformed) {
		return fmt.Errorf("malformed HTTP %s: %s", malformed.What, x.quote(malformed.Text))
	}
	if x.secret == "" || !strings.Contains(err.Error(), x.secret) {
		return err
	}
	return errors.New(x.quote(err.Error()))
}

// quote makes text of an answer fit for an error: without the credential, which servers have been seen to repeat, and as [quoted].
func (x exchange) quote(text string) string {
	if x.secret != "" {
		text = strings.ReplaceAll(text, x.secret, "(credential)")
	}
	return protocol.Quoted(text)
}
