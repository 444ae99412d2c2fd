// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception/podsource/internal/protocol"
)

// Bounds on what a server may send. etcd holds objects of 1.5 MiB by default.
const (
	maxAnswer = 8 << 20
	maxHeader = 64 << 10
)

// exchange is a conversation with one server.
type exchange struct {
	transport *http.Transport
	secret    string // the credential, which no error may repeat; empty when there is none
}

// newTransport makes each request on a connection of its own, by HTTP/1.1, and asks no proxy that the environment names.
func newTransport() *http.Transport {
	transport := &http.Transport{
		Protocols:              new(http.Protocols),
		DisableKeepAlives:      true,
		DisableCompression:     true, // which would let a small answer become a large one
		MaxResponseHeaderBytes: maxHeader,
	}
	transport.Protocols.SetHTTP1(true)
	return transport
}

func newRequest(ctx context.Context, method, url, userAgent string, body []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", userAgent)
	return request, nil
}

// do makes one request. It uses the transport alone, as an http.Client would follow redirects.
func (x exchange) do(request *http.Request) (status int, answer []byte, failure *Error) {
	response, err := x.transport.RoundTrip(request)
	if err != nil {
		return 0, nil, x.transportFailure(request.Context(), err)
	}
	defer func() { _ = response.Body.Close() }() // all that is of use has been read
	if response.StatusCode == http.StatusSwitchingProtocols {
		return response.StatusCode, nil, nil // its body is the connection, which need not end
	}
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil {
		err = request.Context().Err() // closing the connection at the end of the time can look like the answer's end
	}
	switch {
	case err != nil:
		return 0, nil, x.transportFailure(request.Context(), fmt.Errorf("the answer broke off: %w", err))
	case len(answer) > maxAnswer:
		return 0, nil, &Error{Kind: ErrTooLarge, Cause: fmt.Errorf("more than %d bytes", maxAnswer)}
	}
	return response.StatusCode, answer, nil
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
