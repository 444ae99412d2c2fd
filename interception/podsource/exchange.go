// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
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
	secret string // the credential, which no error may repeat; empty when there is none
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
	return request, nil
}

// do makes one request on a connection of its own, all in this goroutine. An [http.Transport] starts three more for it, which costs a
// process that lives for some milliseconds more CPU time than its budget allows.
func (x exchange) do(request *http.Request, write func(io.Writer) error) (status int, answer []byte, failure *Error) {
	ctx := request.Context()
	connection, err := x.dial(ctx)
	if err != nil {
		return 0, nil, x.transportFailure(ctx, err)
	}
	defer hangUp(connection)
	defer endWith(ctx, connection)()
	request.Close = true
	response, err := ask(connection, request, write) //nolint:bodyclose // that would read the rest; the connection is closed
	if err != nil {
		return 0, nil, x.transportFailure(ctx, err)
	}
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil {
		err = ctx.Err() // closing the connection at the end of the time can look like the answer's end
	}
	switch {
	case err != nil:
		return 0, nil, x.transportFailure(ctx, fmt.Errorf("the answer broke off: %w", err))
	case len(answer) > maxAnswer:
		return 0, nil, &Error{Kind: ErrTooLarge, Cause: fmt.Errorf("more than %d bytes", maxAnswer)}
	}
	return response.StatusCode, answer, nil
}

// ask sends the request and reads the header of the answer. It passes over interim answers (1xx), but not 101, which ends the conversation.
func ask(connection net.Conn, request *http.Request, write func(io.Writer) error) (*http.Response, error) {
	header := &io.LimitedReader{R: connection, N: maxHeader}
	reader := bufio.NewReader(header)
	failed := write(connection) // a server that hangs up at once may have said why
	for {
		response, err := http.ReadResponse(reader, request)
		switch {
		case err != nil && header.N <= 0:
			return nil, fmt.Errorf("the header of the answer has more than %d bytes", maxHeader)
		case err != nil:
			return nil, cmp.Or(failed, err)
		case response.StatusCode >= http.StatusOK || response.StatusCode == http.StatusSwitchingProtocols:
			header.N = math.MaxInt64 // what follows is bounded by whoever reads the body
			return response, nil
		}
	}
}

// endWith lets the connection end with the context, until it is released.
func endWith(ctx context.Context, connection net.Conn) (release func() bool) {
	return context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
}

// hangUp doesn't ask what became of the connection: all that was wanted has been read.
func hangUp(connection net.Conn) {
	if secure, ok := connection.(*tls.Conn); ok {
		connection = secure.NetConn() // no farewell, which nobody waits for
	}
	_ = connection.Close()
}

// transportFailure tells why no answer came.
func (x exchange) transportFailure(ctx context.Context, err error) *Error {
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
		return &Error{Kind: ErrTimeout, Cause: x.presentable(err)}
	default:
		return &Error{Kind: ErrUnreachable, Cause: x.presentable(err)}
	}
}

// presentable is the error itself, unless its text repeats what the server sent in a form that is not fit for an error: what cannot be
// read may be our own request.
func (x exchange) presentable(err error) error {
	text := err.Error()
	if shown := x.quote(text); shown != `"`+text+`"` {
		return errors.New(shown)
	}
	return err
}

// quote makes text of an answer fit for an error: without the credential, which servers have been seen to repeat, and as
// [protocol.Quoted]. The credential is looked for as it is and as net/http quotes it.
func (x exchange) quote(text string) string {
	if x.secret != "" {
		escaped := strconv.Quote(x.secret)
		for _, form := range []string{x.secret, escaped[1 : len(escaped)-1]} {
			text = strings.ReplaceAll(text, form, "(credential)")
		}
	}
	return protocol.Quoted(text)
}
