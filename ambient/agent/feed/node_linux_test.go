// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// cluster is the source and the annotator of a test.
type cluster struct {
	changes  chan ambient.Change
	annotate func(ctx context.Context, pod interception.Pod, status ambient.Status) error
}

var errSource = errors.New("the watch is broken")

func newCluster() *cluster { return &cluster{changes: make(chan ambient.Change, 100)} }

// Next fails when the channel is closed.
func (c *cluster) Next(ctx context.Context) (ambient.Change, error) {
	select {
	case change, open := <-c.changes:
		if !open {
			return ambient.Change{}, errSource
		}
		return change, nil
	case <-ctx.Done():
		return ambient.Change{}, ctx.Err()
	}
}

func (c *cluster) Annotate(ctx context.Context, pod interception.Pod, status ambient.Status) error {
	return c.annotate(ctx, pod, status)
}

// events are what a side has observed.
type events struct {
	mu      sync.Mutex
	all     []Event
	changed chan struct{}
}

func newEvents() *events { return &events{changed: make(chan struct{})} }

func (e *events) observe(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
	close(e.changed)
	e.changed = make(chan struct{})
}

// await waits for an event.
func (e *events) await(t *testing.T, what string, is func(Event) bool) Event {
	t.Helper()
	patience, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		e.mu.Lock()
		all, changed := slices.Clone(e.all), e.changed
		e.mu.Unlock()
		if i := slices.IndexFunc(all, is); i >= 0 {
			return all[i]
		}
		select {
		case <-changed:
		case <-patience.Done():
			t.Fatalf("no event %s among %v", what, all)
		}
	}
}

// count returns how many events of a kind there were.
func (e *events) count(kind EventKind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(e.all), func(e Event) bool { return e.Kind != kind }))
}

// awaitEnd waits for the end of a connection, and returns why it ended.
func (e *events) awaitEnd(t *testing.T, connection int) error {
	t.Helper()
	return e.await(t, "of the connection's end", func(e Event) bool { return e.Kind == Disconnected && e.Connection == connection }).Err
}

// serve serves a cluster until the test ends, or stop is called.
func (c *cluster) serve(t *testing.T, path string, o ServerOptions) (stop func() error, observed *events) {
	t.Helper()
	observed = newEvents()
	o.Source, o.Annotator, o.Observe = c, c, observed.observe
	server, err := Listen(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	return stop, observed
}

func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "feed.sock")
}

// agent is a client with its reader.
type agent struct {
	*Client
	*reader

	t        *testing.T
	observed *events
	stop     func()
}

// begin runs a client until the test ends, or stop is called.
func begin(t *testing.T, path string) *agent {
	t.Helper()
	return beginWith(t, path, ClientOptions{})
}

// beginWith begins a client that does not wait long between two attempts.
func beginWith(t *testing.T, path string, o ClientOptions) *agent {
	t.Helper()
	observed := newEvents()
	o.Observe = observed.observe
	o.Backoff = func(int) time.Duration { return time.Millisecond }
	o.AnnotateBackoff = o.Backoff
	a := &agent{Client: NewClient(path, o), reader: newReader(), t: t, observed: observed}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); a.Run(ctx) }()
	a.stop = func() { cancel(); <-ended }
	t.Cleanup(a.stop)
	return a
}

// await reads news until they satisfy the caller.
func (a *agent) await(what string, is func() bool) {
	a.t.Helper()
	patience, cancel := context.WithTimeout(a.t.Context(), 30*time.Second)
	defer cancel()
	for !is() {
		change, err := a.Next(patience)
		if err != nil {
			a.t.Fatalf("no %s: %v; knows %+v", what, err, a.reader)
		}
		for _, problem := range a.learn(change) {
			a.t.Error(problem)
		}
	}
}

// awaitPods waits until the agent knows exactly these pods.
func (a *agent) awaitPods(uids ...string) {
	a.t.Helper()
	a.await("news of exactly these pods", func() bool { return cmp.Equal(a.uids(), uids) })
}

func (r *reader) uids() []string {
	uids := []string{}
	for uid := range r.pods {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// told is a change that names pods of namespace shop.
func told(complete bool, uids ...string) ambient.Change {
	change := ambient.Change{Namespaces: []ambient.Namespace{label("shop", "")}, Complete: complete}
	for _, uid := range uids {
		change.Pods = append(change.Pods, named(uid, "shop", ""))
	}
	return change
}

// raw is a side that the test speaks for, line by line.
type raw struct {
	net.Conn

	t      *testing.T
	reader *bufio.Reader
}

func newRaw(t *testing.T, conn net.Conn, err error) *raw {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &raw{conn, t, bufio.NewReader(conn)}
}

func dial(t *testing.T, path string) *raw {
	t.Helper()
	conn, err := net.Dial("unix", path)
	return newRaw(t, conn, err)
}

// listen makes a socket for a source that the test speaks for.
func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// accept accepts a client, and says hello.
func accept(t *testing.T, listener net.Listener) *raw {
	t.Helper()
	conn, err := listener.Accept()
	r := newRaw(t, conn, err)
	r.expect(`{"hello":{"versions":[1]}}`)
	r.send(`{"hello":{"version":1}}`)
	return r
}

func (r *raw) send(lines ...string) {
	r.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(r, line+"\n"); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *raw) expect(lines ...string) {
	r.t.Helper()
	for _, line := range lines {
		if got, err := r.reader.ReadString('\n'); err != nil || got != line+"\n" {
			r.t.Fatalf("got %q, %v, want %s", got, err, line)
		}
	}
}

// expectEnd waits for the end of the connection. It is reset if the other side has not read all.
func (r *raw) expectEnd() {
	r.t.Helper()
	if got, err := r.reader.ReadString('\n'); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		r.t.Fatalf("got %q, %v, want the end", got, err)
	}
}

// allow lets other users connect at a path, or listen there if there is nothing yet.
func allow(t *testing.T, path string) {
	t.Helper()
	for at := path; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o777); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}
