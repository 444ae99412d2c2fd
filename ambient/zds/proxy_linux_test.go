// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// begin returns a server that serves until the test ends.
func begin(t *testing.T, o Options) *Server {
	t.Helper()
	s := listen(t, o)
	serve(t, s)
	return s
}

// listen returns a server that does not serve yet.
func listen(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Listen(t.Context(), filepath.Join(t.TempDir(), "z"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.listener.Close() }) // a server that has served has closed it
	return s
}

// serve has a server serve until the test ends, or end is called.
func serve(t *testing.T, s *Server) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(ctx) })
	end = func() {
		cancel()
		serving.Wait()
	}
	t.Cleanup(end)
	return end
}

// set sets a pod with a namespace of its own.
func set(t *testing.T, s *Server, uid string) *interception.Netns {
	t.Helper()
	namespace := sandboxtest.NewPod(t).Netns
	if err := s.Set(workload(uid), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace
}

func workload(uid string) Workload {
	return Workload{UID: uid, Name: "name-" + uid, Namespace: "shop", ServiceAccount: "account"}
}

// proxy is the other end of a connection, at the test's command.
type proxy struct {
	*net.UnixConn
	t *testing.T
}

func dial(t *testing.T, s *Server) *proxy {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: s.path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test may have closed it
	return &proxy{conn, t}
}

// connect connects a proxy that has received the snapshot of the given pods.
func connect(t *testing.T, s *Server, pods ...string) *proxy {
	t.Helper()
	p := dial(t, s)
	p.send(Hello{Version: Version1}.Marshal())
	for _, uid := range pods {
		p.take(KindAdd, uid)
	}
	p.take(KindSnapshotSent, "")
	return p
}

func (p *proxy) send(data []byte) {
	p.t.Helper()
	if _, err := p.Write(data); err != nil {
		p.t.Fatal(err)
	}
}

// sendDescriptors sends a message with so many descriptors of one file.
func (p *proxy) sendDescriptors(data []byte, many int) {
	p.t.Helper()
	file, err := os.Open(os.DevNull)
	if err != nil {
		p.t.Fatal(err)
	}
	defer file.Close()
	if _, _, err := p.WriteMsgUnix(data, unix.UnixRights(slices.Repeat([]int{int(file.Fd())}, many)...), nil); err != nil {
		p.t.Fatal(err)
	}
}

func (p *proxy) ack(refusal string) {
	p.t.Helper()
	data, err := Ack{refusal}.Marshal()
	if err != nil {
		p.t.Fatal(err)
	}
	p.send(data)
}

// next returns the next request, and the identity of the namespace that came with it.
func (p *proxy) next() (Request, interception.NetnsID) {
	p.t.Helper()
	data, rights := make([]byte, MaxMessage), make([]byte, 128)
	n, m, _, _, err := p.ReadMsgUnix(data, rights)
	if err != nil {
		p.t.Fatalf("wait for a request: %v", err)
	}
	request, err := ParseRequest(data[:n])
	if err != nil {
		p.t.Fatal(err)
	}
	controls, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil {
		p.t.Fatal(err)
	}
	var id interception.NetnsID
	for _, control := range controls {
		descriptors, err := unix.ParseUnixRights(&control)
		if err != nil || len(descriptors) != 1 {
			p.t.Fatalf("%d descriptors, %v, want one", len(descriptors), err)
		}
		var status unix.Stat_t
		if err := errors.Join(unix.Fstat(descriptors[0], &status), unix.Close(descriptors[0])); err != nil {
			p.t.Fatal(err)
		}
		id = interception.NetnsID{Device: status.Dev, Inode: status.Ino}
	}
	return request, id
}

// take acknowledges the next request, which must be this one.
func (p *proxy) take(kind Kind, uid string) interception.NetnsID {
	p.t.Helper()
	id := p.expect(kind, uid)
	p.ack("")
	return id
}

func (p *proxy) expect(kind Kind, uid string) interception.NetnsID {
	p.t.Helper()
	request, id := p.next()
	want := Request{Kind: kind, Workload: Workload{UID: uid}}
	if kind == KindAdd {
		want.Workload = workload(uid)
	}
	if request != want || (id != interception.NetnsID{}) != (kind == KindAdd) {
		p.t.Fatalf("%s %+v with namespace %v, want %s %s", request.Kind, request.Workload, id, kind, uid)
	}
	return id
}

// expectEnd waits until the server has closed the connection.
func (p *proxy) expectEnd() {
	p.t.Helper()
	if n, err := p.Read(make([]byte, MaxMessage)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && (n > 0 || err != nil) {
		p.t.Fatalf("read %d bytes, %v, want the connection's end", n, err)
	}
}

// await returns what Await says at once.
func await(s *Server, uid string) *AwaitError {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	var wrong *AwaitError
	errors.As(s.Await(ended, uid), &wrong)
	return wrong
}

// settle waits until a condition holds of pod a.
func settle(t *testing.T, s *Server, condition error) {
	t.Helper()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if wrong := await(s, "a"); wrong != nil && errors.Is(wrong, condition) {
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatalf("%v, want %v", await(s, "a"), condition)
		}
	}
}

// awaitConnections waits until so many proxies have said hello and not left.
func awaitConnections(s *Server, many int) {
	for {
		s.mu.Lock()
		changed, live := s.changed, len(s.live)
		s.mu.Unlock()
		if live == many {
			return
		}
		<-changed
	}
}
