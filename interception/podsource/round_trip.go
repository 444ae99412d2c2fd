// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"time"
)

// oneRequest makes each request on a connection of its own, in the goroutine of the caller. http.Transport does the same with four goroutines,
// which is most of what a request costs a program that makes one or two in its life.
type oneRequest struct {
	// dial connects to whom the request is for.
	dial func(ctx context.Context, request *http.Request) (net.Conn, error)
}

// RoundTrip sends the request and reads the header of the answer. The end of the request's context ends whatever goes on.
func (o oneRequest) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	raw, err := o.dial(ctx, request)
	if err != nil {
		return nil, err
	}
	connection := &boundConnection{Conn: raw, left: maxHeader}
	connection.release = context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	response, err := connection.ask(request)
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	connection.left = math.MaxInt // whoever reads the body has a bound of his own
	response.Body = answerBody{response.Body, connection}
	return response, nil
}

// boundConnection lets so many bytes be read.
type boundConnection struct {
	net.Conn
	left    int
	release func() bool // from the context
}

// Read fails once all is read that may be.
func (c *boundConnection) Read(into []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("the header of the answer has more than %d bytes", maxHeader)
	}
	n, err := c.Conn.Read(into[:min(len(into), c.left)])
	c.left -= n
	return n, err
}

// Close ends the connection, without asking what became of it: all that was wanted has been read.
func (c *boundConnection) Close() error {
	c.release()
	if secure, ok := c.Conn.(*tls.Conn); ok {
		_ = secure.NetConn().Close() // no farewell, which nobody waits for
		return nil
	}
	_ = c.Conn.Close()
	return nil
}

// ask writes the request in one piece and reads up to the body of the answer.
func (c *boundConnection) ask(request *http.Request) (*http.Response, error) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", request.Method, request.URL.RequestURI(), request.Host)
	if request.Body != nil {
		fmt.Fprintf(&text, "Content-Length: %d\r\n", request.ContentLength)
	}
	if err := request.Header.Write(&text); err != nil {
		return nil, err
	}
	text.WriteString("\r\n")
	if request.Body != nil {
		if _, err := text.ReadFrom(request.Body); err != nil {
			return nil, err
		}
	}
	_, failed := c.Write(text.Bytes()) // somebody who hangs up at once may have said why
	reader := bufio.NewReader(c)
	for {
		response, err := http.ReadResponse(reader, request)
		switch {
		case err != nil && failed != nil:
			return nil, failed
		case err != nil:
			return nil, err
		case response.StatusCode >= http.StatusOK || response.StatusCode == http.StatusSwitchingProtocols:
			return response, nil
		}
	}
}

// answerBody is the body of an answer, and closes the connection with itself.
type answerBody struct {
	io.Reader
	connection *boundConnection
}

func (b answerBody) Close() error { return b.connection.Close() }
