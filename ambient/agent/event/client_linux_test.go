// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient/agent/event"
)

// listen answers each request on a socket by a function, which may leave the connection open.
func listen(t *testing.T, answer func(net.Conn)) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "pluginevent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				_ = conn.Close() // the plugin has gone before it asked
				continue
			}
			answer(conn)
		}
	}()
	return socket
}

// TestAgentEndsMeanwhile has an agent that ends before it answers, and in the middle of its answer.
func TestAgentEndsMeanwhile(t *testing.T) {
	t.Parallel()
	file, _ := anyFile(t)
	for _, text := range []string{"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"} {
		socket := listen(t, func(conn net.Conn) {
			_, _ = io.WriteString(conn, text)
			_ = conn.Close()
		})
		if _, err := event.Enrol(t.Context(), socket, web(), file); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %q: %v", text, err)
		}
	}
}

// TestAnswerWithoutEnd reads no more of an answer than one may have.
func TestAnswerWithoutEnd(t *testing.T) {
	t.Parallel()
	file, _ := anyFile(t)
	socket := listen(t, func(conn net.Conn) {
		for err := error(nil); err == nil; _, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: ") {
		}
	})
	if _, err := event.Enrol(t.Context(), socket, web(), file); err == nil {
		t.Error("the answer is taken")
	}
}

// TestAgentThatDoesNotAnswer wants the cause that the caller has given for the end of its time.
func TestAgentThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	file, _ := anyFile(t)
	cause := errors.New("the pod's time is over")
	asked := make(chan struct{}, 2)
	socket := listen(t, func(net.Conn) { asked <- struct{}{} })
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(cause)
	}()
	if _, err := event.Enrol(ctx, socket, web(), file); !errors.Is(err, cause) {
		t.Errorf("Enrol = %v", err)
	}
	expired, end := context.WithTimeoutCause(t.Context(), time.Nanosecond, cause)
	defer end()
	<-expired.Done()
	if _, err := event.Enrol(expired, socket, web(), file); !errors.Is(err, cause) {
		t.Errorf("after the end: Enrol = %v", err)
	}
}

// TestClosedNamespace waits for no answer to a request that could not be sent.
func TestClosedNamespace(t *testing.T) {
	t.Parallel()
	socket, _ := serve(t, &enroller{})
	file, _ := anyFile(t)
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := event.Enrol(t.Context(), socket, web(), file); err == nil || !strings.Contains(err.Error(), "network namespace: use of closed file") {
		t.Errorf("Enrol = %v", err)
	}
}
