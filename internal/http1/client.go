// SPDX-License-Identifier: Apache-2.0

package http1

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"time"
)

// The statuses that are in use (RFC 9110, 15).
const (
	StatusSwitchingProtocols  = 101
	StatusOK                  = 200
	StatusNoContent           = 204
	StatusMultipleChoices     = 300
	StatusNotModified         = 304
	StatusUnauthorized        = 401
	StatusForbidden           = 403
	StatusNotFound            = 404
	StatusTooManyRequests     = 429
	StatusInternalServerError = 500
)

// Response is an answer.
type Response struct {
	// Status is from 200 to 999, or 101.
	Status int
	// Body is all of it.
	Body []byte
}

// Client is the bounds of an answer. The zero Client takes no answer at all.
type Client struct {
	// MaxHeader is how many bytes the header may have, those of interim answers included; and as many those behind a body in chunks.
	MaxHeader int
	// MaxBody is how many bytes the body may have.
	MaxBody int
}

// ErrTooLarge means that the body of the answer has more than MaxBody bytes.
var ErrTooLarge = errors.New("the body of the answer is too large")

// MalformedError is about what is no HTTP/1.1.
type MalformedError struct {
	// What should be there, such as "status line".
	What string
	// Text is there instead, as it came. It may be long, and repeat a credential of the request.
	Text string
}

// Error quotes the text.
func (e *MalformedError) Error() string { return fmt.Sprintf("malformed HTTP %s: %q", e.What, e.Text) }

// Do sends the request over the connection, reads the answer to its end, and closes the connection. Interim answers (1xx) are passed over,
// save 101. Nothing goes on any more once the context has ended, and the error then is whatever the connection says.
//
// The error is [ErrTooLarge], a [*MalformedError], or tells what became of the connection.
func (c Client) Do(ctx context.Context, connection net.Conn, request Request) (Response, error) {
	defer hangUp(connection)
	text, err := request.text(Field{"Connection", "close"})
	if err != nil {
		return Response{}, err
	}
	defer endWith(ctx, connection)()
	reader := newReader(connection, c.MaxHeader)
	head, err := reader.ask(text)
	if err != nil {
		return Response{}, err
	}
	reader.source.left = math.MaxInt // what follows is counted by its content
	body, err := reader.body(head, c)
	if err != nil {
		return Response{}, err
	}
	return Response{head.status, body}, nil
}

// Tunnel asks a proxy to connect to the address, a host and a port (CONNECT; RFC 9110, 9.3.6). If there is no error the connection leads there.
// It is the caller's to close in any case.
func (c Client) Tunnel(ctx context.Context, connection net.Conn, address string, header ...Field) error {
	text, err := Request{Method: "CONNECT", Target: address, Host: address, Header: header}.text()
	if err != nil {
		return err
	}
	defer endWith(ctx, connection)()
	reader := newReader(connection, c.MaxHeader)
	head, err := reader.ask(text)
	switch {
	case err != nil:
		return fmt.Errorf("the proxy: %w", err)
	case head.status < StatusOK || head.status >= StatusMultipleChoices:
		return fmt.Errorf("the proxy answers with status %d", head.status)
	case reader.Buffered() > 0:
		return errors.New("the proxy sends more than its answer")
	}
	return nil
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

// reader reads an answer.
type reader struct {
	*bufio.Reader
	source *source
}

func newReader(connection net.Conn, most int) reader {
	s := &source{connection, most, most}
	return reader{bufio.NewReader(s), s}
}

// ask sends the request, in one piece, and reads the header of the answer.
func (r reader) ask(text []byte) (head, error) {
	_, failed := r.source.Write(text) // somebody who hangs up at once may have said why
	for {
		head, err := r.head()
		switch {
		case err != nil && failed != nil:
			return head, failed
		case err != nil, head.status >= StatusOK, head.status == StatusSwitchingProtocols:
			return head, err
		}
	}
}

// source is a connection of which so many bytes may be read.
type source struct {
	net.Conn
	left, most int
}

// Read fails once all is read that may be.
func (s *source) Read(into []byte) (int, error) {
	if s.left <= 0 {
		return 0, fmt.Errorf("the header of the answer has more than %d bytes", s.most)
	}
	n, err := s.Conn.Read(into[:min(len(into), s.left)])
	s.left -= n
	return n, err
}
