// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
	"github.com/meshcni/meshcni/internal/spool"
)

// request is what a client of another making sends.
func request(t *testing.T, dir, method, target, body string) (status int, answer string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, podsource.AgentSocket))
	}}
	defer transport.CloseIdleConnections()
	status, answer, kind := roundTrip(t, transport, method, target, body)
	if len(answer) > 0 && kind != "application/json" {
		t.Errorf("got content type %q", kind)
	}
	return status, answer
}

func roundTrip(t *testing.T, transport *http.Transport, method, target, body string) (status int, answer, contentType string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data), response.Header.Get("Content-Type")
}

func TestServerAnswers(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	serve(t, dir, (&daemon{pod: interception.Pod{Namespace: "shop", Name: "web-0", UID: "1"}}).server())
	for name, test := range map[string]struct {
		method, path, body string
		status             int
		want               string
	}{
		"pod":         {"GET", "/v1/pods/shop/web-0", "", 200, `{"pod":{"namespace":"shop","name":"web-0","uid":"1"}}`},
		"pod by UID":  {"GET", "/v1/pods/shop/web-0?uid=1", "", 200, `{"pod":{"namespace":"shop","name":"web-0","uid":"1"}}`},
		"more to say": {"GET", "/v1/pods/shop/web-0?uid=1&hue=blue", "", 200, `{"pod":{"namespace":"shop","name":"web-0","uid":"1"}}`},
		"another UID": {
			"GET", "/v1/pods/shop/web-0?uid=2", "", 409, `{"error":{"reason":"StalePod","message":"the pod of that name has UID 1"}}`,
		},
		"no such pod": {"GET", "/v1/pods/shop/web-1", "", 404, `{"error":{"reason":"PodNotFound","message":"knows no such pod"}}`},
		"no name":     {"GET", "/v1/pods/shop/..%2Fweb", "", 400, `{"error":{"reason":"BadRequest","message":"the pod's name \"../web\" has`},
		"status":      {"GET", "/v1/status", "", 200, `{"ready":true,"version":"v1.2.3"}`},
		"logs":        {"POST", "/v1/logs", `{"entries":[{"time":"2026-11-21T12:00:00Z","level":"info","message":"m","later":1}],"more":2}`, 204, ""},
		"results":     {"POST", "/v1/results", `{"results":[{"command":"ADD","later":{}}]}`, 204, ""},
		"no JSON":     {"POST", "/v1/logs", `[`, 400, `{"error":{"reason":"BadRequest","message":"unexpected end of JSON input"}}`},
		"no level":    {"POST", "/v1/logs", `{"entries":[{"level":"loud"}]}`, 400, `{"error":{"reason":"BadRequest","message":"slog: level string`},
		"too large": {
			"POST", "/v1/results", strings.Repeat(" ", 1<<20+1), 413, `{"error":{"reason":"TooLarge","message":"a request may have 1048576 bytes"}}`,
		},
		"another method": {"DELETE", "/v1/pods/shop/web-0", "", 405, `{"error":{"reason":"MethodNotAllowed","message":"use GET"}}`},
		"GET of logs":    {"GET", "/v1/logs", "", 405, `{"error":{"reason":"MethodNotAllowed","message":"use POST"}}`},
		"newer version": {
			"GET", "/v2/pods/shop/web-0", "", 404,
			`{"error":{"reason":"UnsupportedVersion","message":"this agent does not speak that version of the protocol","versions":["v1"]}}`,
		},
		"another path": {"GET", "/v1/nodes", "", 404, `{"error":{"reason":"UnknownPath","message":"this version`},
		"no version":   {"GET", "/vain", "", 404, `{"error":{"reason":"UnknownPath","message":"this version`},
		"root":         {"GET", "/", "", 404, `{"error":{"reason":"UnknownPath","message":"this version`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, answer := request(t, dir, test.method, "http://agent"+test.path, test.body)
			if status != test.status || !strings.HasPrefix(answer, test.want) || (answer == "") != (test.want == "") {
				t.Errorf("got %d, %s", status, answer)
			}
		})
	}
}

func TestServerThatOffersLess(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	serve(t, dir, agentserver.Server{})
	agent := agentFor(dir)
	_, err := agent.Pod(t.Context(), web)
	wantFailure(t, err, podsource.ErrProtocol, `status 501, "NotServed", "this agent does not offer that"`)
	wantFailure(t, agent.Report(t.Context(), nil), podsource.ErrProtocol, `"NotServed"`)
	wantFailure(t, agent.Log(t.Context(), nil), podsource.ErrProtocol, `"NotServed"`)
	_, err = agent.Status(t.Context())
	wantFailure(t, err, podsource.ErrProtocol, `node agent speaks another version of the protocol (unix:`)
}

// TestInstances: each answer of either server names the agent, also one that the agent has no such
// path.
func TestInstances(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	serve(t, dir, agentserver.Server{Instance: "one", Status: &daemon{}})
	listener, err := agentserver.ListenIstioLog(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agentserver.IstioLogServer{Instance: "one"}.Serve(ctx, listener) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for socket, paths := range map[string][]string{podsource.AgentSocket: {"/", "/v1/status"}, spool.IstioLogSocket: {"/"}} {
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, socket))
		}}}
		for _, path := range paths {
			response, err := client.Get("http://agent" + path)
			if err != nil {
				t.Fatal(err)
			}
			if got := response.Header.Get(agentserver.InstanceHeader); got != "one" || response.Body.Close() != nil {
				t.Errorf("%s %s: got %q", socket, path, got)
			}
		}
	}
}

func TestServerReportsItsFailures(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is full")
	d := &daemon{err: broken}
	dir := runDir(t)
	serve(t, dir, d.server())
	agent := agentFor(dir)
	wantFailure(t, agent.Report(t.Context(), nil), podsource.ErrServer, `status 500, "Failed", "the disk is full"`)
	wantFailure(t, agent.Log(t.Context(), nil), podsource.ErrServer, `"Failed"`)
	_, err := agent.Status(t.Context())
	wantFailure(t, err, podsource.ErrServer, `"Failed"`)
	if len(d.errors) != 3 || !errors.Is(d.errors[0], broken) || d.errors[0].Error() != `POST "/v1/results": the disk is full` {
		t.Errorf("got %v", d.errors)
	}
}

// refusing is a source that fails with err, or panics if that is nil.
type refusing struct{ err error }

func (r refusing) Pod(context.Context, podsource.Ref) (interception.Pod, error) {
	if r.err == nil {
		panic("a defect")
	}
	return interception.Pod{}, r.err
}

func TestServerPassesOnWhatItsSourceSays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ say, want error }{
		{podsource.ErrNotFound, podsource.ErrNotFound},
		{&podsource.Error{Kind: podsource.ErrStalePod}, podsource.ErrStalePod},
		{podsource.ErrRef, podsource.ErrRequest},
		{fmt.Errorf("pods are being listed: %w", podsource.ErrNotReady), podsource.ErrNotReady},
		{podsource.ErrUnauthorized, podsource.ErrServer},
		{context.DeadlineExceeded, podsource.ErrServer},
	} {
		dir := runDir(t)
		serve(t, dir, agentserver.Server{Pods: refusing{test.say}})
		_, err := agentFor(dir).Pod(t.Context(), web)
		wantFailure(t, err, test.want, test.say.Error())
	}
}

func TestServerSurvivesAPanic(t *testing.T) {
	t.Parallel()
	d := &daemon{}
	server := d.server()
	server.Pods = refusing{}
	dir := runDir(t)
	serve(t, dir, server)
	_, err := agentFor(dir).Pod(t.Context(), web)
	wantFailure(t, err, podsource.ErrUnreachable, "EOF (asked 3 times)")
	if _, err := agentFor(dir).Status(t.Context()); err != nil {
		t.Error(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.errors) != 3 || !strings.Contains(d.errors[0].Error(), "panic serving @: a defect") {
		t.Errorf("got %v", d.errors)
	}
}

// TestServerIsNotHeldUp has more peers that say nothing, or not enough, than may be there at once.
func TestServerIsNotHeldUp(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	d := &daemon{pod: webPod()}
	serve(t, dir, d.server())
	for i := range 600 {
		connection, err := net.Dial("unix", filepath.Join(dir, podsource.AgentSocket))
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		half := []string{"", "GET /v1/status HTTP/1.1\r\nX: "}[i%2]
		if _, err := io.WriteString(connection, half); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := agentFor(dir).Pod(t.Context(), web); err != nil {
		t.Error(err)
	}
}

func TestServerTakesNoEndlessHeader(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	serve(t, dir, (&daemon{}).server())
	connection, err := net.Dial("unix", filepath.Join(dir, podsource.AgentSocket))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	go func() {
		_, _ = io.WriteString(connection, "GET /v1/status HTTP/1.1\r\nHost: agent\r\nX: "+strings.Repeat("x", 64<<10))
	}()
	answer, _ := io.ReadAll(connection) // the connection may be reset after the answer
	if !strings.HasPrefix(string(answer), "HTTP/1.1 431") {
		t.Errorf("got %q", answer)
	}
}

func TestServeEnds(t *testing.T) {
	t.Parallel()
	t.Run("with the context, after what is under way", func(t *testing.T) {
		t.Parallel()
		dir := runDir(t)
		listener, err := agentserver.Listen(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		inside := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- agentserver.Server{Pods: waiting{inside, ctx}}.Serve(ctx, listener)
		}()
		answered := make(chan error, 1)
		go func() {
			_, err := agentFor(dir).Pod(context.WithoutCancel(ctx), web)
			answered <- err
		}()
		<-inside
		cancel()
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Run("with the context, before it began", func(t *testing.T) {
		t.Parallel()
		listener, err := agentserver.Listen(t.Context(), runDir(t))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := (agentserver.Server{}).Serve(ctx, listener); err != nil {
			t.Error(err)
		}
		if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v from a listener that should be closed", err)
		}
	})
	t.Run("with the listener", func(t *testing.T) {
		t.Parallel()
		listener, err := agentserver.Listen(t.Context(), runDir(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		if err := (agentserver.Server{}).Serve(t.Context(), listener); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}

// waiting answers once the server's context ends.
type waiting struct {
	inside chan<- struct{}
	ctx    context.Context //nolint:containedctx // the server's context, kept for its handlers
}

func (w waiting) Pod(ctx context.Context, _ podsource.Ref) (interception.Pod, error) {
	close(w.inside)
	<-w.ctx.Done()
	return webPod(), ctx.Err()
}

// TestServerOnAnotherKindOfSocket has peers without credentials.
func TestServerOnAnotherKindOfSocket(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&daemon{}).server().Serve(ctx, listener) }()
	response, err := http.Get("http://" + listener.Addr().String() + "/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	const want = `{"error":{"reason":"Forbidden","message":"a connection of *net.TCPConn has no credentials: use a unix socket"}}` + "\n"
	if diff := cmp.Diff(want, string(data)); diff != "" || err != nil || response.StatusCode != http.StatusForbidden || !response.Close {
		t.Errorf("got %d, %v\n%s", response.StatusCode, err, diff)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
