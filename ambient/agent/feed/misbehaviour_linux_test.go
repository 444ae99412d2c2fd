// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/unixsocket"
)

const (
	hello   = `{"hello":{"versions":[1]}}`
	welcome = `{"hello":{"version":1}}`
)

// TestMisbehavingAgents ends their connections, and says why. Another agent is served all the
// while.
func TestMisbehavingAgents(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sends   string
		answers []string
		want    error
	}{
		"no hello":            {"", nil, os.ErrDeadlineExceeded},
		"half a hello":        {`{"hel`, nil, os.ErrDeadlineExceeded},
		"another version":     {`{"hello":{"versions":[2,3]}}` + "\n", []string{`{"refused":{"reason":"UnsupportedVersion","message":"the sides of the feed speak no common version of its protocol: run both from one release: the agent speaks [2 3], and this side 1","versions":[1]}}`}, ErrVersion},
		"no version":          {`{"hello":{}}` + "\n", []string{`{"refused":{"reason":"UnsupportedVersion","message":"the sides of the feed speak no common version of its protocol: run both from one release: the agent speaks [], and this side 1","versions":[1]}}`}, ErrVersion},
		"another protocol":    {"GET / HTTP/1.1\r\n\r\n", []string{`{"refused":{"reason":"InvalidMessage","message":"wait for its hello: invalid message: invalid character 'G' looking for beginning of value"}}`}, ErrMessage},
		"a request at first":  {`{"annotate":{"number":1,"namespace":"a","name":"b","uid":"c"}}` + "\n", []string{`{"refused":{"reason":"InvalidMessage","message":"wait for its hello: invalid message: the first one is no hello"}}`}, ErrMessage},
		"garbage":             {hello + "\n\x00\xff\n", []string{welcome, `{"refused":{"reason":"InvalidMessage","message":"invalid message: invalid character '\\x00' looking for beginning of value"}}`}, ErrMessage},
		"half a request":      {hello + "\n" + `{"annotate":{"number":1,"namespace":"a"}}` + "\n", []string{welcome, `{"refused":{"reason":"InvalidMessage","message":"invalid message: annotate: it has no uid\nit has no name"}}`}, ErrMessage},
		"an oversize message": {hello + "\n" + strings.Repeat("x", 2*maxFromAgent), []string{welcome, `{"refused":{"reason":"InvalidMessage","message":"invalid message: it has more than 8192 bytes"}}`}, ErrMessage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, c := socketPath(t), newCluster()
			_, observed := c.serve(t, path, ServerOptions{Timeout: 200 * time.Millisecond})
			bad := dial(t, path)
			if _, err := io.WriteString(bad, test.sends); err != nil {
				t.Fatal(err)
			}
			bad.expect(test.answers...)
			bad.expectEnd()
			if err := observed.awaitEnd(t, 1); !errors.Is(err, test.want) {
				t.Errorf("the connection ends with %v, want %v", err, test.want)
			}
			c.changes <- told(true, "1")
			begin(t, path).awaitPods("1")
		})
	}
}

// TestLaterAgent speaks a later version, too, and sends what this one does not know.
func TestLaterAgent(t *testing.T) {
	t.Parallel()
	path, c := socketPath(t), newCluster()
	c.serve(t, path, ServerOptions{})
	r := dial(t, path)
	r.send(`{"hello":{"versions":[1,2],"name":"x"}}`, `{"question":{}}`)
	r.expect(welcome)
	c.changes <- told(true)
	r.expect(`{"complete":{}}`)
}

// TestMisbehavingSources are left, and the client tries again. What they said before counts.
func TestMisbehavingSources(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sends string
		want  error
		text  string
	}{
		"no hello":            {"", os.ErrDeadlineExceeded, "wait for its hello"},
		"another version":     {`{"hello":{"version":2}}` + "\n", ErrVersion, "the source chose 2, and this side speaks 1"},
		"a refused version":   {`{"refused":{"reason":"UnsupportedVersion","versions":[2,3]}}` + "\n", ErrVersion, "the source speaks [2 3], and this side 1"},
		"refused":             {`{"refused":{"reason":"Forbidden","message":"no"}}` + "\n", errRefused, `"Forbidden", "no"`},
		"refused later":       {welcome + "\n" + `{"refused":{"reason":"New","message":"no"}}` + "\n", errRefused, `"New", "no"`},
		"another protocol":    {"HTTP/1.1 400 Bad Request\r\n\r\n", ErrMessage, "read its hello"},
		"a pod at first":      {`{"pod":{"namespace":"a","name":"b","uid":"c"}}` + "\n", ErrMessage, "no hello"},
		"garbage":             {welcome + "\n\xff\n", ErrMessage, ""},
		"a pod without a UID": {welcome + "\n" + `{"pod":{"namespace":"a","name":"b"}}` + "\n", ErrMessage, "it has no uid"},
		"an oversize message": {welcome + "\n" + strings.Repeat("x", 2*maxFromSource), ErrMessage, "more than 4194304 bytes"},
		"a cut message":       {welcome + "\n" + `{"pod":`, io.ErrUnexpectedEOF, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := socketPath(t)
			listener := listen(t, path)
			a := beginWith(t, path, ClientOptions{Timeout: 300 * time.Millisecond})
			conn, err := listener.Accept()
			bad := newRaw(t, conn, err)
			bad.expect(hello)
			if _, err := io.WriteString(bad, test.sends); err != nil && !errors.Is(err, fs.ErrClosed) {
				t.Log(err) // the client may have left already
			}
			if errors.Is(test.want, io.ErrUnexpectedEOF) {
				_ = bad.Close()
			}
			if err := a.observed.awaitEnd(t, 1); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("the connection ends with %v, want %v, %s", err, test.want, test.text)
			}
			good := accept(t, listener)
			good.send(`{"namespace":{"name":"shop"}}`, `{"news":{}}`, `{"pod":{"namespace":"shop","name":"a","uid":"1","new":7}}`, `{"complete":{}}`)
			a.awaitPods("1")
		})
	}
}

// TestOtherUsers are served no pods, and are told none.
func TestOtherUsers(t *testing.T) {
	t.Parallel()
	t.Run("an agent", func(t *testing.T) {
		t.Parallel()
		path, c := socketPath(t), newCluster()
		_, observed := c.serve(t, path, ServerOptions{})
		c.changes <- told(true, "1")
		allow(t, path)
		var conn net.Conn
		var err error
		if !sandboxtest.AsAnotherUser(t, func() { conn, err = net.Dial("unix", path) }) {
			return
		}
		r := newRaw(t, conn, err)
		r.expect(`{"refused":{"reason":"Forbidden","message":"the process at the other end is of user 1234, and not of root or user 0"}}`)
		r.expectEnd()
		if peer := (*unixsocket.PeerError)(nil); !errors.As(observed.awaitEnd(t, 1), &peer) || peer.UID != 1234 {
			t.Errorf("got %v", peer)
		}
	})
	t.Run("a source", func(t *testing.T) {
		t.Parallel()
		path := socketPath(t)
		allow(t, path)
		var listener net.Listener
		var err error
		if !sandboxtest.AsAnotherUser(t, func() { listener, err = net.Listen("unix", path) }) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		a := begin(t, path)
		conn, err := listener.Accept()
		newRaw(t, conn, err).expectEnd()
		if peer := (*unixsocket.PeerError)(nil); !errors.As(a.observed.awaitEnd(t, 1), &peer) || peer.UID != 1234 {
			t.Errorf("got %v", peer)
		}
	})
}
