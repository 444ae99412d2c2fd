// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
)

// listen listens on a socket of another making than ListenAgent's, until the test ends.
func listen(t testing.TB, dir, name string) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// fakeAgent serves HTTP as it likes on agent.sock, or on another socket, and counts.
func fakeAgent(t testing.TB, dir, name string, handle http.HandlerFunc) (calls *atomic.Int32) {
	t.Helper()
	calls = new(atomic.Int32)
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			handle(w, r)
		}),
	}
	listener := listen(t, dir, name)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return calls
}

// saying is an answer.
func saying(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestAgentFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer   http.HandlerFunc
		kind     error
		want     string
		attempts int
	}{
		"no such pod": {
			saying(http.StatusNotFound, `{"error":{"reason":"PodNotFound","message":"gone"}}`), podsource.ErrNotFound,
			`agent.sock): status 404, "PodNotFound", "gone" (asked 4 times); nothing has to be done if`, 4,
		},
		"another pod": {
			saying(http.StatusConflict, `{"error":{"reason":"StalePod"}}`), podsource.ErrStalePod, "(asked 4 times); nothing has to be done", 4,
		},
		"another UID in a success": {
			saying(http.StatusOK, `{"pod":{"namespace":"shop","name":"web-0","uid":"u\u0007"}}`), podsource.ErrStalePod, `with UID "u.", and not`, 4,
		},
		"another name": {
			saying(http.StatusOK, `{"pod":{"namespace":"shop","name":"web-1","uid":"`+uid+`"}}`), podsource.ErrNotPod, `it is "shop"/"web-1"`, 1,
		},
		"no pod":  {saying(http.StatusOK, `{}`), podsource.ErrNotPod, "it has no pod; see whether it is the node agent", 1},
		"garbage": {saying(http.StatusOK, `<html>`), podsource.ErrAnswer, "not the expected JSON", 1},
		"another type": {
			saying(http.StatusOK, `{"pod":[]}`), podsource.ErrAnswer, "not the expected JSON", 1,
		},
		"no agent at all": {saying(http.StatusNotFound, "404 page not found"), podsource.ErrAnswer, "status 404; see whether it is", 1},
		"a redirect":      {saying(http.StatusFound, ""), podsource.ErrAnswer, "status 302", 1},
		"a huge answer":   {saying(http.StatusOK, strings.Repeat(" ", 9<<20)), podsource.ErrTooLarge, "more than 8388608 bytes", 1},
		"a failing agent": {saying(http.StatusInternalServerError, `{"error":{"reason":"Failed","message":"e"}}`), podsource.ErrServer, "log", 3},
		"an agent that starts": {
			saying(http.StatusServiceUnavailable, `{"error":{"reason":"NotReady","message":"soon"}}`), podsource.ErrNotReady, `"soon"; see the node`, 1,
		},
		"a reason to come":  {saying(http.StatusTeapot, `{"error":{"reason":"Tea"}}`), podsource.ErrRequest, `"Tea"`, 1},
		"a failure to come": {saying(http.StatusInsufficientStorage, `{"error":{"reason":"Full"}}`), podsource.ErrServer, `"Full"`, 3},
		"a newer agent": {
			saying(http.StatusNotFound, `{"error":{"reason":"UnsupportedVersion","versions":["v2","v3"]}}`), podsource.ErrProtocol,
			`"UnsupportedVersion"; it speaks "v2, v3", and this side v1; use versions of the node agent`, 1,
		},
		"an older agent": {
			saying(http.StatusNotFound, `{"error":{"reason":"UnknownPath"}}`), podsource.ErrProtocol, "speaks another version", 1,
		},
		"forbidden":   {saying(http.StatusForbidden, `{"error":{"reason":"Forbidden"}}`), podsource.ErrForbidden, "ask as root", 1},
		"bad request": {saying(http.StatusBadRequest, `{"error":{"reason":"BadRequest"}}`), podsource.ErrRequest, "of which version", 1},
		"a cut": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, podsource.ErrUnreachable, "see whether the node agent's pod", 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := runDir(t)
			calls := fakeAgent(t, dir, podsource.AgentSocket, test.answer)
			_, err := agentFor(dir).Pod(t.Context(), web)
			failure := wantFailure(t, err, test.kind, test.want)
			if failure.Attempts != test.attempts || int(calls.Load()) != test.attempts {
				t.Errorf("asked %d times, and says %d", calls.Load(), failure.Attempts)
			}
			if !strings.HasPrefix(err.Error(), "pod shop/web-0: node agent ") || failure.Server != "unix:"+dir+"/agent.sock" {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAgentAsksOnce(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	calls := fakeAgent(t, dir, podsource.AgentSocket, saying(http.StatusNotFound, `{"error":{"reason":"PodNotFound"}}`))
	agent := agentFor(dir)
	agent.Once = true
	_, err := agent.Pod(t.Context(), web)
	if failure := wantFailure(t, err, podsource.ErrNotFound, "PodNotFound"); failure.Attempts != 1 || calls.Load() != 1 {
		t.Errorf("asked %d times, and says %d", calls.Load(), failure.Attempts)
	}
}

// TestAgentGetsLists has nothing to hand over, which is a list all the same.
func TestAgentGetsLists(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	got := map[string]string{}
	fakeAgent(t, dir, podsource.AgentSocket, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		got[r.URL.Path] = string(body)
		if err != nil {
			t.Error(err)
		}
		saying(http.StatusOK, `{"entries":0}`)(w, r)
	})
	agent := agentFor(dir)
	const results, logs = "/v1/results", "/v1/logs"
	if err := errors.Join(agent.Report(t.Context(), nil), agent.Log(t.Context(), nil)); err != nil || got[results] != `{"results":[]}` || got[logs] != `{"entries":[]}` {
		t.Errorf("got %v, %v", got, err)
	}
	if reported, logged := agent.Tell(t.Context(), nil, nil); reported != nil || logged != nil || got[results] != `{"results":[]}` {
		t.Errorf("got %v, %v, %v", got, reported, logged)
	}
}

// TestResultsThatJSONHasNot says what can't be written, instead of sending something else.
func TestResultsThatJSONHasNot(t *testing.T) {
	t.Parallel()
	for want, result := range map[string]podsource.Result{
		"NaN":  {Stages: []podsource.Stage{{Milliseconds: math.NaN()}}},
		"+Inf": {Stages: []podsource.Stage{{Milliseconds: math.Inf(1)}}},
		"year": {Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		wantFailure(t, agentFor(runDir(t)).Report(t.Context(), []podsource.Result{result}), podsource.ErrRequest, want)
	}
}

func TestAgentThatIsNotThere(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	_, err := agentFor(dir).Pod(t.Context(), web)
	failure := wantFailure(t, err, podsource.ErrUnreachable, "no such file or directory; see whether the node agent's pod runs on this node, and")
	if !errors.Is(err, fs.ErrNotExist) || failure.Attempts != 1 {
		t.Errorf("got %v after %d attempts", err, failure.Attempts)
	}
}

func TestAgentThatLeftItsSocket(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	listener, err := agentserver.Listen(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = agentFor(dir).Pod(t.Context(), web)
	wantFailure(t, err, podsource.ErrUnreachable, "connection refused (asked 3 times); see whether the node agent's pod runs on this node")
}

func TestAgentThatHangs(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(t *testing.T, dir string){
		"accepts nobody": func(t *testing.T, dir string) { t.Helper(); listen(t, dir, podsource.AgentSocket) },
		"never answers": func(t *testing.T, dir string) {
			t.Helper()
			fakeAgent(t, dir, podsource.AgentSocket, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		},
		"drips": func(t *testing.T, dir string) {
			t.Helper()
			fakeAgent(t, dir, podsource.AgentSocket, func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					if _, err := io.WriteString(w, " "); err != nil {
						return
					}
					_ = http.NewResponseController(w).Flush()
				}
			})
		},
		"drips before the header": func(t *testing.T, dir string) {
			t.Helper()
			listener := listen(t, dir, podsource.AgentSocket)
			go func() {
				for {
					connection, err := listener.Accept()
					if err != nil {
						return
					}
					go func() {
						defer connection.Close()
						_, _ = connection.Read(make([]byte, 1)) // what comes before the request is no answer to it
						_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\nX: ")
						_, _ = io.Copy(io.Discard, connection)
					}()
				}
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := runDir(t)
			serve(t, dir)
			agent := agentFor(dir)
			agent.CallTimeout = 30 * time.Millisecond
			_, err := agent.Pod(t.Context(), web)
			wantFailure(t, err, podsource.ErrTimeout, "no answer within 30ms for one request: context deadline exceeded (asked 2 times); see the node agent's log")

			agent = agentFor(dir)
			agent.Timeout = 30 * time.Millisecond
			_, err = agent.Pod(t.Context(), web)
			wantFailure(t, err, podsource.ErrTimeout, "no answer within 30ms in all")
		})
	}
}

func TestAgentPauseEndsWithTheContext(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	fakeAgent(t, dir, podsource.AgentSocket, saying(http.StatusNotFound, `{"error":{"reason":"PodNotFound"}}`))
	ctx, cancel := context.WithCancel(t.Context())
	agent := agentFor(dir)
	agent.Backoff = func(int) time.Duration {
		cancel()
		return time.Hour
	}
	_, err := agent.Pod(ctx, web)
	wantFailure(t, err, podsource.ErrNotFound, "nothing has to be done")
}

func TestAgentOfALaterVersionMaySayMore(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	fakeAgent(t, dir, podsource.AgentSocket, saying(http.StatusOK,
		`{"pod":{"namespace":"shop","name":"web-0","uid":"`+uid+`","hue":"blue","containers":[{"name":"a","ports":[1]}]},"age":5}`))
	pod, err := agentFor(dir).Pod(t.Context(), web)
	if err != nil || len(pod.Containers) != 1 {
		t.Errorf("got %+v, %v", pod, err)
	}
}

func TestAgentSocketIsNoSocket(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	if err := os.WriteFile(filepath.Join(dir, podsource.AgentSocket), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := agentFor(dir).Status(t.Context())
	wantFailure(t, err, podsource.ErrUnreachable, "node agent cannot be reached (unix:")
}
