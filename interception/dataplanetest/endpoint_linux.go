// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// endpoint is a namespace and its listeners.
type endpoint struct {
	place     Place
	namespace *sandbox.Namespace
	mail      *mailbox

	// owners are the owners of the listeners by their ports, set before any is opened; root by
	// default.
	owners map[uint16]owner

	mu       sync.Mutex
	open     map[socketName]*sharedListener
	lastPort uint16 // the latest source port given to a UDP probe
}

// socketName identifies a listener, which listens at the wildcard addresses of both families.
type socketName struct {
	protocol Protocol
	port     uint16
}

// sharedListener is open as long as a probe needs it.
type sharedListener struct {
	users     int
	sockets   []io.Closer
	datagrams []*datagramSocket // its UDP sockets
	serving   sync.WaitGroup
}

func newEndpoint(place Place, path string, mail *mailbox) (*endpoint, error) {
	return endpointIn(sandbox.NewNamespace, place, path, mail)
}

// newPodEndpoint makes the endpoint of a pod.
func newPodEndpoint(path string, mail *mailbox, o PodOptions) (*endpoint, error) {
	if o.OwnUsers {
		return endpointIn(sandbox.NewNamespaceOfUsers, InPod, path, mail)
	}
	return newEndpoint(InPod, path, mail)
}

// endpointIn makes an endpoint in a namespace that create makes.
func endpointIn(create func(path string) (*sandbox.Namespace, error), place Place, path string, mail *mailbox) (*endpoint, error) {
	namespace, err := create(path)
	if err != nil {
		return nil, err
	}
	return &endpoint{
		place: place, namespace: namespace, mail: mail, owners: map[uint16]owner{}, open: map[socketName]*sharedListener{},
	}, nil
}

// listen keeps a listener open until release is called.
func (e *endpoint) listen(ctx context.Context, protocol Protocol, port uint16) (release func() error, err error) {
	name := socketName{protocol, port}
	e.mu.Lock()
	defer e.mu.Unlock()
	listener := e.open[name]
	if listener == nil {
		listener, err = e.newListener(ctx, name)
		// A new process may still hold a copy of a listener that was just closed: exec lets the
		// parent continue before it closes inherited descriptors.
		for tries := 0; errors.Is(err, syscall.EADDRINUSE) && tries < 1000 && ctx.Err() == nil; tries++ {
			<-time.After(time.Millisecond)
			listener, err = e.newListener(ctx, name)
		}
		if err != nil {
			return nil, fmt.Errorf("listen in %s on %s port %d: %w", e.place, protocol, port, err)
		}
		e.open[name] = listener
	}
	listener.users++
	return func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if listener.users--; listener.users > 0 {
			return nil
		}
		delete(e.open, name)
		return listener.close()
	}, nil
}

// newListener opens a socket for each family: one for both would see IPv4-mapped addresses, and
// could not read SO_ORIGINAL_DST.
func (e *endpoint) newListener(ctx context.Context, name socketName) (*sharedListener, error) {
	listener := &sharedListener{}
	err := e.namespace.Do(func() error {
		return asUser(e.owners[name.port], func() error {
			return errors.Join(e.openSocket(ctx, listener, name, "4"), e.openSocket(ctx, listener, name, "6"))
		})
	})
	if err != nil {
		return nil, errors.Join(err, listener.close())
	}
	return listener, nil
}

// openSocket opens and serves one socket. It runs inside the namespace.
func (e *endpoint) openSocket(ctx context.Context, listener *sharedListener, name socketName, family string) error {
	if name.protocol == TCP {
		socket, err := e.listenTCP(ctx, name.port, family)
		if err != nil {
			return err
		}
		listener.sockets = append(listener.sockets, socket)
		listener.serving.Go(func() {
			// The thread's ids become the owner's: a connection belongs to the thread that accepts
			// it.
			runtime.LockOSThread()
			_ = asUser(e.owners[name.port], func() error { e.accept(socket, name.port); return nil })
		})
		return nil
	}
	socket, err := e.listenUDP(name.port, family)
	if err != nil {
		return err
	}
	listener.sockets = append(listener.sockets, socket.conn)
	listener.datagrams = append(listener.datagrams, socket)
	listener.serving.Go(socket.serve)
	return nil
}

// transparent reports whether the listener on a port is transparent: TPROXY hands connections to no
// others, and elsewhere any address answers.
func (e *endpoint) transparent(port uint16) bool {
	_, proxy := e.owners[port]
	return proxy || e.place == Elsewhere
}

// prepare makes the socket of a listener transparent or marked, if it has to be.
func (e *endpoint) prepare(fd int, port uint16, family string) error {
	if err := setMark(fd, e.owners[port].mark); err != nil || !e.transparent(port) {
		return err
	}
	return setTransparent(fd, family == "4")
}

func (e *endpoint) listenTCP(ctx context.Context, port uint16, family string) (*net.TCPListener, error) {
	// No keep-alives: only the test may send.
	config := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		var refused error
		err := raw.Control(func(fd uintptr) { refused = e.prepare(int(fd), port, family) })
		return errors.Join(err, refused)
	}}
	listener, err := config.Listen(ctx, "tcp"+family, net.JoinHostPort("", strconv.Itoa(int(port))))
	if err != nil {
		return nil, err
	}
	socket, ok := listener.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("listen to TCP: got a %T", listener)
	}
	return socket, nil
}

// drain reports every datagram that has come to this namespace.
func (e *endpoint) drain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, listener := range e.open {
		for _, socket := range listener.datagrams {
			socket.drain()
		}
	}
}

// close returns when the port is free again: the kernel keeps a closed socket until the last call
// that uses it has returned, and until no starting process has a copy of the descriptor.
func (l *sharedListener) close() error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var errs []error
	for _, socket := range l.sockets {
		errs = append(errs, socket.Close())
	}
	l.serving.Wait()
	return errors.Join(errs...)
}

func (e *endpoint) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, listener := range e.open {
		errs = append(errs, listener.close())
	}
	return errors.Join(append(errs, e.namespace.Close())...)
}
