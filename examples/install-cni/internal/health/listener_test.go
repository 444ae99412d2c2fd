// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// TestManyConnections: clients that open connections and leave them open, with half a request, a
// slow request or nothing, do not keep other clients from an answer, and lose all but the newest
// connections.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]string{
		"nothing": "", "half a request": "GET /readyz HTTP/1.1\r\nHost: node\r\n",
		"a request": "GET /slow HTTP/1.1\r\nHost: node\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := serveSlowly(t)
			const more = 10
			var all []net.Conn
			for range 2*mostConnections + more {
				connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = connection.Close() }()
				if _, err := io.WriteString(connection, sent); err != nil && !errors.Is(err, net.ErrClosed) {
					t.Log(err) // it is closed already
				}
				all = append(all, connection)
			}
			probe(t, address)
			for i, connection := range all[:mostConnections+more] {
				if err := connection.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				if _, err := connection.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("connection %d of %d is still open: %v", i, len(all), err)
					break
				}
			}
			probe(t, address)
		})
	}
}

// serveSlowly serves requests, of which some take as long as the test.
func serveSlowly(t *testing.T) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mux, release := http.NewServeMux(), make(chan struct{})
	mux.Handle("/", NewState().Handler())
	mux.HandleFunc("/slow", func(http.ResponseWriter, *http.Request) { <-release })
	ctx, end := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- Serve(ctx, listener, mux) }()
	t.Cleanup(func() {
		close(release)
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// probe sends a request as the kubelet does.
func probe(t *testing.T, address string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/readyz", address), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK || response.Body.Close() != nil {
		t.Errorf("got status %d", response.StatusCode)
	}
}

// TestConnectionsThatEndMakeRoom: only an open connection is closed for a new one.
func TestConnectionsThatEndMakeRoom(t *testing.T) {
	t.Parallel()
	c := &crowd{most: 2}
	var all []net.Conn
	for range 4 {
		ours, theirs := net.Pipe()
		defer func() { _, _ = ours.Close(), theirs.Close() }()
		all = append(all, ours)
	}
	isOpen := func(connection net.Conn) bool { return connection.SetDeadline(time.Time{}) == nil }
	for _, connection := range all[:2] {
		c.note(connection, http.StateNew)
		c.note(connection, http.StateActive)
	}
	c.note(all[0], http.StateClosed)
	c.note(all[2], http.StateNew)
	if !isOpen(all[0]) || !isOpen(all[1]) || !isOpen(all[2]) {
		t.Error("one was closed where there was room, or another one had ended")
	}
	c.note(all[3], http.StateNew)
	if isOpen(all[1]) || !isOpen(all[2]) || !isOpen(all[3]) {
		t.Error("not the oldest that is open was closed")
	}
}
