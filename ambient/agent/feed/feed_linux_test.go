// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	nodeagent "github.com/meshcni/meshcni/ambient/agent"
)

// The agent takes a client for its feed and for its annotator.
var (
	_ nodeagent.Feed      = (*Client)(nil)
	_ nodeagent.Annotator = (*Client)(nil)
)

func TestFeed(t *testing.T) {
	t.Parallel()
	path, c := socketPath(t), newCluster()
	a := begin(t, path) // before there is a source
	a.observed.await(t, "that there is no source", func(e Event) bool { return e.Kind == Disconnected && errors.Is(e.Err, fs.ErrNotExist) })
	_, observed := c.serve(t, path, ServerOptions{})
	one := full()
	c.changes <- ambient.Change{Pods: []ambient.Pod{one}, Namespaces: []ambient.Namespace{label("shop", "b"), label("empty", "")}}
	a.awaitPods("1")
	if a.complete {
		t.Error("the feed is complete, and the source is not")
	}
	if got := a.pods["1"]; got.Annotations["a"] != one.Annotations["a"] || len(got.Addresses) != 2 || a.namespaces["shop"] != "b" {
		t.Errorf("the agent knows %+v", a.reader)
	}
	c.changes <- told(true, "2")
	a.await("a complete feed", func() bool { return a.complete })
	a.awaitPods("1", "2")
	c.changes <- ambient.Change{Gone: []string{"1"}}
	a.awaitPods("2")
	for _, kind := range []EventKind{Connected, Completed} {
		a.observed.await(t, "of the agent", func(e Event) bool { return e.Kind == kind })
		observed.await(t, "of the source", func(e Event) bool { return e.Kind == kind && e.Connection == 1 })
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if change, err := a.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v, %v", change, err)
	}
}

// TestSourceRestarts ends the source and starts another one, whose view is incomplete at first.
func TestSourceRestarts(t *testing.T) {
	t.Parallel()
	path, first, second := socketPath(t), newCluster(), newCluster()
	stop, _ := first.serve(t, path, ServerOptions{})
	first.changes <- told(true, "1", "2")
	a := begin(t, path)
	a.awaitPods("1", "2")
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("serving ends with %v", err)
	}
	second.serve(t, path, ServerOptions{})
	second.changes <- told(false, "2", "3")
	a.awaitPods("1", "2", "3")
	second.changes <- told(true)
	a.awaitPods("2", "3")
}

// TestSourceIsReplaced begins a second server in place of the first, which then ends. So does a
// rolling update of the source.
func TestSourceIsReplaced(t *testing.T) {
	t.Parallel()
	path, first, second := socketPath(t), newCluster(), newCluster()
	stop, _ := first.serve(t, path, ServerOptions{})
	info, err := os.Stat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket has mode %v, %v, want 0600", info.Mode(), err)
	}
	first.changes <- told(true, "1")
	old := begin(t, path)
	old.awaitPods("1")
	second.serve(t, path, ServerOptions{})
	second.changes <- told(true, "2")
	begin(t, path).awaitPods("2")
	first.changes <- told(true, "3")
	old.awaitPods("1", "3")
	_ = stop() // TestSourceRestarts looks at the error
	old.awaitPods("2")
}

// TestSourceEnds has a source that fails: the server says so, and its agents wait for another one.
func TestSourceEnds(t *testing.T) {
	t.Parallel()
	path, c := socketPath(t), newCluster()
	stop, _ := c.serve(t, path, ServerOptions{})
	a := begin(t, path)
	a.observed.await(t, "of the connection", func(e Event) bool { return e.Kind == Connected })
	close(c.changes)
	_ = a.observed.awaitEnd(t, 1) // that the source has hung up
	if err := stop(); !errors.Is(err, errSource) {
		t.Errorf("serving ends with %v", err)
	}
}

// TestCutSnapshots ends the connection after each message of a snapshot, from either side and in
// the middle of a message: nothing is gone until a snapshot is complete.
func TestCutSnapshots(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	listener := listen(t, path)
	a := begin(t, path)
	snapshot := []string{`{"namespace":{"name":"shop"}}`, `{"pod":{"namespace":"shop","name":"b","uid":"2"}}`, `{"pod":{"namespace":"shop","name":"c","uid":"3"}}`}
	s := accept(t, listener)
	s.send(snapshot...)
	s.send(`{"pod":{"namespace":"shop","name":"a","uid":"1"}}`, `{"complete":{}}`)
	a.awaitPods("1", "2", "3")
	_ = s.Close() // this and the others end as a process that is killed
	for i := range snapshot {
		for _, rest := range []string{"", `{"pod":{"namespa`} {
			s := accept(t, listener)
			s.send(snapshot[:i]...)
			if _, err := s.Write([]byte(rest)); err != nil {
				t.Fatal(err)
			}
			_ = s.Close()
		}
	}
	s = accept(t, listener)
	s.send(snapshot...)
	a.observed.await(t, "of the last connection", func(e Event) bool { return e.Kind == Connected && e.Connection == 2*len(snapshot)+2 })
	a.await("an end of the first namespace", func() bool { // which shows that all before was taken over
		s.send(`{"pod":{"namespace":"shop","name":"d","uid":"4"}}`)
		return a.pods["4"].UID != ""
	})
	if len(a.gone) > 0 {
		t.Errorf("%v are gone, and no snapshot was complete", a.gone)
	}
	s.send(`{"complete":{}}`)
	a.awaitPods("2", "3", "4")
}

// TestCutAgents has agents that end after each message. The source serves the next one.
func TestCutAgents(t *testing.T) {
	t.Parallel()
	path, c := socketPath(t), newCluster()
	_, observed := c.serve(t, path, ServerOptions{})
	c.changes <- told(true, "1", "2")
	all := []string{
		`{"hello":{"version":1}}`, `{"namespace":{"name":"shop","labels":{"a":""}}}`, `{"pod":{"namespace":"shop","name":"web-1","uid":"1"}}`,
		`{"pod":{"namespace":"shop","name":"web-2","uid":"2"}}`, `{"complete":{}}`,
	}
	for i := range len(all) + 1 {
		r := dial(t, path)
		r.send(`{"hello":{"versions":[1]}}`)
		if i > 0 {
			r.expect(all[0])
		}
		if i > 1 {
			r.expect(all[1:i]...)
		}
		_ = r.Close()
		_ = observed.awaitEnd(t, i+1) // that the agent has hung up
	}
	begin(t, path).awaitPods("1", "2")
}

// TestSlowAgent has an agent that reads nothing. Another one is served meanwhile, and the slow one
// is disconnected.
func TestSlowAgent(t *testing.T) {
	t.Parallel()
	path, c := socketPath(t), newCluster()
	_, observed := c.serve(t, path, ServerOptions{Timeout: 300 * time.Millisecond})
	slow := dial(t, path)
	slow.send(`{"hello":{"versions":[1]}}`)
	slow.expect(`{"hello":{"version":1}}`)
	for i := range 50 {
		large := named(fmt.Sprint(i), "shop", "")
		large.Annotations = map[string]string{"a": strings.Repeat("x", 64<<10)}
		c.changes <- ambient.Change{Namespaces: []ambient.Namespace{label("shop", "")}, Pods: []ambient.Pod{large}}
	}
	c.changes <- told(true)
	a := begin(t, path)
	a.await("50 pods", func() bool { return a.complete && len(a.pods) == 50 })
	if err := observed.awaitEnd(t, 1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the slow agent is disconnected with %v", err)
	}
}

// TestIdleConnection lasts longer than either side's timeout: so long that the source has
// disconnected an agent that came later and says nothing.
func TestIdleConnection(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	path, c := socketPath(t), newCluster()
	_, observed := c.serve(t, path, ServerOptions{Timeout: timeout})
	a := beginWith(t, path, ClientOptions{Timeout: timeout})
	a.observed.await(t, "of the connection", func(e Event) bool { return e.Kind == Connected })
	dial(t, path)
	_ = observed.awaitEnd(t, 2) // TestMisbehavingAgents looks at the error
	c.changes <- told(true, "1")
	a.awaitPods("1")
	if n := a.connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestPauses grow while no source says hello, and begin anew after one has.
func TestPauses(t *testing.T) {
	t.Parallel()
	path, failed := socketPath(t), make(chan int)
	listener := listen(t, path)
	c := NewClient(path, ClientOptions{Backoff: func(failures int) time.Duration { failed <- failures; return 0 }})
	go c.Run(t.Context())
	for _, step := range []struct {
		hello bool
		want  int
	}{{false, 1}, {false, 2}, {false, 3}, {true, 1}, {false, 2}} {
		conn, err := listener.Accept()
		r := newRaw(t, conn, err)
		r.expect(hello)
		if step.hello {
			r.send(welcome)
		}
		_ = r.Close()
		if got := <-failed; got != step.want {
			t.Errorf("%d failures, want %d", got, step.want)
		}
	}
	for failures := range 30 {
		if got := growing(firstPause, longestPause)(failures + 1); got < firstPause*4/5 || got > longestPause*6/5 {
			t.Errorf("pause %v after %d failures", got, failures+1)
		}
	}
}

// TestUnsendable reports what the source must not tell, and does not call the feed complete.
func TestUnsendable(t *testing.T) {
	t.Parallel()
	path, c := socketPath(t), newCluster()
	_, observed := c.serve(t, path, ServerOptions{})
	large := named("large", "shop", "")
	large.Annotations = map[string]string{"a": strings.Repeat("x", maxFromSource)}
	bad := told(true, "1")
	bad.Pods, bad.Namespaces = append(bad.Pods, large), append(bad.Namespaces, ambient.Namespace{})
	c.changes <- bad
	a := begin(t, path)
	a.awaitPods("1")
	if e := observed.await(t, "of the pod", func(e Event) bool { return e.UID == "large" }); e.Kind != NotTold || !errors.Is(e.Err, ErrMessage) {
		t.Errorf("got %+v", e)
	}
	observed.await(t, "of the namespace", func(e Event) bool { return e.Kind == NotTold && e.UID == "" && errors.Is(e.Err, ErrMessage) })
	c.changes <- told(true, "2")
	a.awaitPods("1", "2")
	if a.complete {
		t.Error("the feed is complete, and a pod was not told")
	}
}

// TestManyAgents serves as many as may connect at once, and none of the others until one of the
// first ends. Then it serves one of them.
func TestManyAgents(t *testing.T) {
	t.Parallel()
	const others = 8
	path, c := socketPath(t), newCluster()
	_, observed := c.serve(t, path, ServerOptions{})
	c.changes <- told(true, "1")
	var served [maxConnections]*agent
	for i := range served {
		served[i] = begin(t, path)
		served[i].awaitPods("1")
	}
	for range others {
		dial(t, path).send(hello)
	}
	c.changes <- told(true, "2")
	for _, a := range served { // meanwhile the server could have greeted the others
		a.awaitPods("1", "2")
	}
	if got := observed.count(Connected); got != maxConnections {
		t.Errorf("%d agents are connected at once, want %d", got, maxConnections)
	}
	served[0].stop()
	observed.await(t, "of one agent more", func(e Event) bool { return e.Kind == Connected && e.Connection == maxConnections+1 })
}

// TestCauseOfTheEnd has a source fail: each connection is said to end for that, and not because its
// socket is closed. One of them waits for the agent's hello.
func TestCauseOfTheEnd(t *testing.T) {
	t.Parallel()
	path, c := socketPath(t), newCluster()
	stop, observed := c.serve(t, path, ServerOptions{Timeout: time.Hour})
	dial(t, path)
	begin(t, path)
	observed.await(t, "of the agent that says hello", func(e Event) bool { return e.Kind == Connected })
	close(c.changes)
	for number := range 2 {
		if err := observed.awaitEnd(t, number+1); !errors.Is(err, errSource) || errors.Is(err, net.ErrClosed) {
			t.Errorf("connection %d ends with %v, want %v", number+1, err, errSource)
		}
	}
	if err := stop(); !errors.Is(err, errSource) {
		t.Errorf("serving ends with %v", err)
	}
}

// TestNextEnds with the cause of its context's end.
func TestNextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSource)
	if change, err := NewClient(socketPath(t), ClientOptions{}).Next(ctx); !errors.Is(err, errSource) {
		t.Errorf("got %+v, %v", change, err)
	}
}
