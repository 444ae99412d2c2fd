// SPDX-License-Identifier: Apache-2.0

package agentserver

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAClosedConnectionGivesItsPlaceBack has a listener with a single place.
func TestAClosedConnectionGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	bounded := newBoundedListener(listener, 1)
	server := &http.Server{Handler: http.NotFoundHandler(), ConnState: bounded.free}
	served := make(chan error, 1)
	go func() { served <- server.Serve(bounded) }()
	first, second := ask(t, path), ask(t, path)
	wantAnswer(t, first)
	if err := second.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := second.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came while another connection has the place", n)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, second)
	if err := server.Close(); err != nil { // while Accept waits for a place
		t.Error(err)
	}
	if err := <-served; err == nil {
		t.Error("Serve has ended without an error")
	}
}

// ask sends a request on a new connection, and leaves that open.
func ask(t *testing.T, path string) net.Conn {
	t.Helper()
	connection, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return connection
}

func wantAnswer(t *testing.T, connection net.Conn) {
	t.Helper()
	if err := connection.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 1<<10)
	if n, err := connection.Read(answer); err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 404") {
		t.Fatalf("got %q, %v", answer[:n], err)
	}
}
