// SPDX-License-Identifier: Apache-2.0

package event

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/internal/unixsocket"
)

// exchange makes one request of the agent at a socket, in this goroutine alone, and returns the
// status and the body of the answer. An [http.Transport] starts three more goroutines, which takes
// more CPU time than the plugin has for a pod, and it links HTTP/2. The namespace may be nil.
func exchange(ctx context.Context, socket, method, path string, body []byte, namespace *os.File) (status int, answer []byte, err error) {
	text, err := encode(ctx, method, path, body)
	if err != nil {
		return 0, nil, err
	}
	conn, err := new(net.Dialer).DialUnix(ctx, "unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return 0, nil, causeOf(ctx, err)
	}
	defer conn.Close() //nolint:errcheck // the answer was read, or has failed
	release := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer release()
	if err := unixsocket.CheckPeer(conn); err != nil {
		return 0, nil, err
	}
	status, answer, err = converse(conn, text, namespace)
	return status, answer, causeOf(ctx, err)
}

// causeOf returns why the context has ended, if it has: the end looks like a failure of the
// connection.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// encode returns the text of a request.
func encode(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Close = true
	request.Header.Set("Content-Type", "application/json")
	var text bytes.Buffer
	err = request.Write(&text)
	return text.Bytes(), err
}

// converse sends a request, whose first bytes carry the namespace, and reads the answer.
func converse(conn *net.UnixConn, text []byte, namespace *os.File) (status int, answer []byte, err error) {
	var failed error
	if namespace != nil {
		var n int
		n, failed = send(conn, text, namespace)
		text = text[n:]
	}
	if failed == nil && len(text) > 0 {
		_, failed = conn.Write(text)
	}
	if failed = hungUp(failed); failed != nil && !errors.Is(failed, io.ErrUnexpectedEOF) {
		return 0, nil, failed
	} // else an agent that hangs up at once may have said why
	response, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, 2*maxBody)), nil)
	if err != nil {
		return 0, nil, cmp.Or(failed, hungUp(fmt.Errorf("read the answer: %w", err)))
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	answer, err = readAll(response.Body)
	return response.StatusCode, answer, hungUp(err)
}

// hungUp returns an error that is io.ErrUnexpectedEOF if the agent has closed the connection.
func hungUp(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
	}
	return err
}
