// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
)

// Bounds on what a server may send. etcd holds objects of 1.5 MiB by default.
const (
	maxAnswer = 8 << 20
	maxHeader = 64 << 10
)

// exchange is a conversation with one server.
type exchange struct {
	dial   func(context.Context) (net.Conn, error)
	secret string           // the credential, which no error may repeat; empty when there is none
	kept   *AgentConnection // nil if each request has its own connection
}

func newRequest(ctx context.Context, method, url, userAgent string, body []byte) (*http.Request, error) {
	if strings.ContainsFunc(userAgent, unicode.IsControl) {
		return nil, errors.New("the name of this program, for the User-Agent, has a control character")
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", userAgent)
	request.Close = true
	return request, nil
}

// encoded returns the text of a request, as one of its methods writes it. The error is about the
// request, and not about the connection.
func encoded(write func(io.Writer) error) ([]byte, error) {
	var text bytes.Buffer
	err := write(&text)
	return text.Bytes(), err
}

// do makes one request, whose encoding is text, in this goroutine alone. An [http.Transport] starts
// three more, which costs more CPU time than a process that lives for some milliseconds can afford.
func (x exchange) do(request *http.Request, text []byte) (status int, answer []byte, failure *Error) {
	ctx := request.Context()
	if w := x.kept.take(); w != nil {
		status, answer, failure = x.converse(w, request, text)
		if failure == nil || w.answered() || ctx.Err() != nil {
			return status, answer, failure
		} // else the server closed the connection before it answered anything
	}
	connection, err := x.dial(ctx)
	if err != nil {
		return 0, nil, transportFailure(ctx, err)
	}
	return x.converse(newWire(connection), request, text)
}

// converse makes the request on a connection, and then keeps or closes the connection.
func (x exchange) converse(w *wire, request *http.Request, text []byte) (status int, answer []byte, failure *Error) {
	ctx, reusable := request.Context(), false
	release := endWith(ctx, w)
	defer func() {
		if !release() || failure != nil || !reusable || !x.kept.keep(w) {
			hangUp(w.Conn)
		}
	}()
	response, err := w.ask(request, text) //nolint:bodyclose // closing the body would read the rest; the connection is closed instead
	if err != nil {
		return 0, nil, transportFailure(ctx, err)
	}
	answer, err = w.body(response)
	reusable = err == nil && w.reusable(response)
	switch {
	case errors.Is(err, errTooLarge):
		return 0, nil, &Error{Kind: ErrTooLarge, Cause: err}
	case err != nil:
		return 0, nil, transportFailure(ctx, err)
	case ctx.Err() != nil: // the end of the time can look like the answer's end
		return 0, nil, transportFailure(ctx, ctx.Err())
	}
	return response.StatusCode, answer, nil
}

// endWith makes reads and writes of the connection fail once the context ends, until release is
// called.
func endWith(ctx context.Context, connection net.Conn) (release func() bool) {
	return context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
}

// hangUp closes the connection. An error doesn't matter: the answer has been read, or has failed.
func hangUp(connection net.Conn) {
	if secure, ok := connection.(*tls.Conn); ok {
		connection = secure.NetConn() // without close_notify, which the server need not get
	}
	_ = connection.Close()
}

// transportFailure says why no answer came.
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

// quote makes text of an answer fit for an error: it removes the credential, which some servers
// repeat, and applies [protocol.Quoted].
func (x exchange) quote(text string) string {
	if x.secret != "" {
		text = strings.ReplaceAll(text, x.secret, "(credential)")
	}
	return protocol.Quoted(text)
}
