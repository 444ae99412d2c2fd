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
	"math"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/internal/unixsocket"
)

// exchange makes one request of the agent at a socket, in this goroutine alone, and has the answer
// read. An [http.Transport] starts three more goroutines, which takes more CPU time than the plugin
// has for a pod, and it links HTTP/2. The first bytes of the request carry the namespace, unless
// that is nil.
func exchange(
	ctx context.Context, socket, method, path string, body []byte, namespace *os.File, read func(status int, body io.Reader) error,
) error {
	text, err := encode(ctx, method, path, body)
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialUnix(ctx, "unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return causeOf(ctx, err)
	}
	defer conn.Close() //nolint:errcheck // the answer was read, or has failed
	release := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer release()
	if err := unixsocket.CheckPeer(conn); err != nil {
		return err
	}
	failed := write(conn, text, namespace)
	if failed != nil && !errors.Is(failed, io.ErrUnexpectedEOF) {
		return causeOf(ctx, failed)
	} // else an agent that hangs up at once may have said why
	from := &io.LimitedReader{R: answering{ctx, conn}, N: maxBody}
	answer, err := http.ReadResponse(bufio.NewReader(from), nil)
	if err != nil {
		return cmp.Or(failed, fmt.Errorf("read the answer: %w", err))
	}
	defer answer.Body.Close() //nolint:errcheck // it was read
	from.N = math.MaxInt64    // who reads the body bounds it
	return read(answer.StatusCode, answer.Body)
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

// write sends a request, whose first bytes carry the namespace.
func write(conn *net.UnixConn, text []byte, namespace *os.File) error {
	if namespace != nil {
		n, err := send(conn, text, namespace)
		if err != nil {
			return hungUp(err)
		}
		text = text[n:]
	}
	if len(text) == 0 {
		return nil
	}
	_, err := conn.Write(text)
	return hungUp(err)
}

// answering reads an answer. Its errors tell why the context has ended, and that the agent has.
type answering struct {
	ctx  context.Context
	conn net.Conn
}

func (a answering) Read(data []byte) (int, error) {
	n, err := a.conn.Read(data)
	if err != nil && !errors.Is(err, io.EOF) {
		err = causeOf(a.ctx, hungUp(err))
	}
	return n, err
}

// causeOf returns why the context has ended, if it has: the end looks like a failure of the
// connection.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// hungUp returns an error that is io.ErrUnexpectedEOF if the agent has closed the connection.
func hungUp(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
	}
	return err
}
