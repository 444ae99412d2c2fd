// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/podsource/agentserver"
)

// countingListener counts the connections that it accepted.
type countingListener struct {
	net.Listener
	accepted atomic.Int32
}

func (l *countingListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return connection, err
}

// serveCounted serves until stop is called or the test ends.
func serveCounted(t *testing.T, dir string, server agentserver.Server) (listener *countingListener, stop func()) {
	t.Helper()
	raw, err := agentserver.Listen(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	listener = &countingListener{Listener: raw}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(ctx, listener); err != nil {
			t.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return listener, stop
}

// keepingAgent is an agentFor that keeps its connection.
func keepingAgent(t *testing.T, dir string) podsource.Agent {
	t.Helper()
	agent := agentFor(dir)
	agent.Kept = new(podsource.AgentConnection)
	t.Cleanup(func() { _ = agent.Kept.Close() })
	return agent
}

func TestAgentConnects(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		keeps bool
		want  int32
	}{
		"once if it keeps the connection": {true, 1},
		"for each request otherwise":      {false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, dir := &daemon{pod: webPod()}, runDir(t)
			listener, _ := serveCounted(t, dir, d.server())
			agent := keepingAgent(t, dir)
			if !test.keeps {
				agent.Kept = nil
			}
			_, failure := agent.Status(t.Context())
			_, err := agent.Pod(t.Context(), web)
			reported, logged := agent.Tell(t.Context(), []podsource.Result{{Command: "ADD"}}, logEntries())
			if err := errors.Join(failure, err, reported, logged); err != nil {
				t.Fatal(err)
			}
			if got := listener.accepted.Load(); got != test.want {
				t.Errorf("got %d connections, want %d", got, test.want)
			}
		})
	}
}

func TestAgentKeepsTheConnectionAfterARefusal(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	listener, _ := serveCounted(t, dir, (&daemon{err: podsource.ErrNotFound}).server())
	_, err := keepingAgent(t, dir).Pod(t.Context(), web)
	wantFailure(t, err, podsource.ErrNotFound, "asked 4 times")
	if got := listener.accepted.Load(); got != 1 {
		t.Errorf("got %d connections", got)
	}
}

// TestAgentConnectsAnewAfterAReplacement replaces the agent that was asked.
func TestAgentConnectsAnewAfterAReplacement(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	before, after := &daemon{pod: webPod()}, &daemon{}
	_, stop := serveCounted(t, dir, before.server())
	agent := keepingAgent(t, dir)
	if _, err := agent.Pod(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	stop()
	listener, _ := serveCounted(t, dir, after.server())
	for range 2 {
		if err := agent.Report(t.Context(), []podsource.Result{{Command: "ADD"}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(before.results) != 0 || len(after.results) != 2 || listener.accepted.Load() != 1 {
		t.Errorf("got %d and %d results, %d connections", len(before.results), len(after.results), listener.accepted.Load())
	}
}

func TestAgentThatIsGoneIsUnreachable(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	_, stop := serveCounted(t, dir, (&daemon{pod: webPod()}).server())
	agent := keepingAgent(t, dir)
	if _, err := agent.Pod(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := agent.Report(t.Context(), nil); !errors.Is(err, podsource.ErrUnreachable) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
}

// TestAgentKeepsNoConnectionThatIsOver has agents that end the connection, or leave it in a state
// in which no other request may follow.
func TestAgentKeepsNoConnectionThatIsOver(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"it is closed":        "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
		"of HTTP/1.0":         "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
		"it goes on":          "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
		"of another protocol": "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := runDir(t)
			asked := answers(t, dir, []string{answer}, []string{"HTTP/1.1 204 No Content\r\n\r\n"})
			agent := keepingAgent(t, dir)
			_ = agent.Report(t.Context(), nil)
			if err := agent.Report(t.Context(), nil); err != nil || asked.Load() != 2 {
				t.Errorf("got %v, after %d requests", err, asked.Load())
			}
		})
	}
}

// TestAgentAsksNoOtherAfterAPartOfAnAnswer checks that a request that an agent began to answer is
// not sent again on another connection.
func TestAgentAsksNoOtherAfterAPartOfAnAnswer(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	asked := answers(t, dir, []string{"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 No Content\r\n"}, []string{"HTTP/1.1 204 No Content\r\n\r\n"})
	agent := keepingAgent(t, dir)
	if err := agent.Report(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, agent.Report(t.Context(), nil), podsource.ErrUnreachable, "EOF")
	if asked.Load() != 2 {
		t.Errorf("asked %d times", asked.Load())
	}
}

// answers listens as the node agent: each connection in turn has answers for so many requests, and
// then ends. It counts the requests.
func answers(t *testing.T, dir string, connections ...[]string) (asked *atomic.Int32) {
	t.Helper()
	listener := listen(t, dir, podsource.AgentSocket)
	t.Cleanup(func() { _ = listener.Close() })
	asked = new(atomic.Int32)
	go func() {
		for _, answers := range connections {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 4<<10)
			for _, answer := range answers {
				if _, err := connection.Read(buffer); err != nil {
					break
				}
				asked.Add(1)
				_, _ = io.WriteString(connection, answer)
			}
			_ = connection.Close()
		}
	}()
	return asked
}

// TestAgentKeepsNoConnectionThatTookTooLong: the answer that is late would be taken for the next
// one.
func TestAgentKeepsNoConnectionThatTookTooLong(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	proceed := make(chan struct{})
	calls := fakeAgent(t, dir, podsource.AgentSocket, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-proceed
		}
		_, _ = io.WriteString(w, `{"ready":true}`)
	})
	agent := keepingAgent(t, dir)
	if _, err := agent.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	slow := agent
	slow.CallTimeout = 50 * time.Millisecond
	wantFailure(t, slow.Report(t.Context(), nil), podsource.ErrTimeout, "no answer within 50ms for one request")
	close(proceed)
	status, err := agent.Status(t.Context())
	if err != nil || !status.Ready || calls.Load() != 3 {
		t.Errorf("got %+v, %v, after %d calls", status, err, calls.Load())
	}
}

func TestServerClosesAConnectionWithoutRequests(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	serve(t, dir, (&daemon{}).server())
	connection, err := net.Dial("unix", filepath.Join(dir, podsource.AgentSocket))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "POST /v1/results HTTP/1.1\r\nHost: agent\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
		t.Fatal(err)
	}
	answered := time.Now()
	if _, err := io.ReadAll(connection); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(answered); took < time.Second || took > time.Minute {
		t.Errorf("it was closed after %v", took)
	}
}
