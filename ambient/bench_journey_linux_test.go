// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/testing/talk"
)

// journey is a way from a pod to the application in a pod of another node. Its methods return
// microseconds. They use blocking sockets in one thread, so that nothing but the way differs.
type journey struct {
	name string
	from *nodes.Place
	to   netip.Addr
}

// connections returns what it takes to connect, send a byte and receive it.
func (j journey) connections() (float64, error) {
	const count = 40
	begin := time.Now()
	err := j.inside(func() error {
		for range count {
			conn, err := j.connect(talk.Port)
			if err == nil {
				err = errors.Join(exchange(conn, 1), unix.Close(conn))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return perUnit(begin, count), err
}

// packets returns what it takes to send a byte, and receive it, by an open connection.
func (j journey) packets() (float64, error) {
	const count = 400
	var begin time.Time
	err := j.inside(func() error {
		conn, err := j.connect(talk.Port)
		if err != nil {
			return err
		}
		err = exchange(conn, 1)
		begin = time.Now()
		return errors.Join(err, exchange(conn, count), unix.Close(conn))
	})
	return perUnit(begin, count), err
}

func (j journey) stream() (float64, error)  { return j.inParallel(1, 16) }
func (j journey) streams() (float64, error) { return j.inParallel(16, 2) }

// inParallel returns what it takes to send a megabyte by that many connections at once, each of
// which sends that many.
func (j journey) inParallel(streams, megabytes int) (float64, error) {
	conns := make([]int, streams)
	if err := j.inside(func() (err error) {
		for i := range conns {
			if conns[i], err = j.connect(sinkPort); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return 0, err
	}
	failures := make([]error, streams)
	begin := time.Now()
	var sending sync.WaitGroup
	for i, conn := range conns {
		sending.Go(func() { failures[i] = errors.Join(pour(conn, megabytes), unix.Close(conn)) })
	}
	sending.Wait()
	return perUnit(begin, streams*megabytes), errors.Join(failures...)
}

func perUnit(begin time.Time, units int) float64 {
	return float64(time.Since(begin)) / float64(time.Microsecond) / float64(units)
}

func (j journey) inside(do func() error) error { return namespace.Run(j.from.Netns.File(), do) }

// connect returns a socket whose end leaves no state: the next turn needs the port.
func (j journey) connect(port int) (int, error) {
	conn, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	return conn, errors.Join(
		unix.SetsockoptLinger(conn, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.SetsockoptInt(conn, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.Connect(conn, &unix.SockaddrInet4{Port: port, Addr: j.to.As4()}),
	)
}

// exchange sends a byte and receives it, count times.
func exchange(conn, count int) error {
	data := []byte{1}
	for range count {
		if _, err := unix.Write(conn, data); err != nil {
			return err
		}
		if n, err := unix.Read(conn, data); n != 1 {
			return errors.Join(io.ErrUnexpectedEOF, err)
		}
	}
	return nil
}

// pour sends megabytes, and waits until the application has received them all.
func pour(conn, megabytes int) error {
	data := make([]byte, 1<<20)
	for range megabytes {
		for rest := data; len(rest) > 0; {
			n, err := unix.Write(conn, rest)
			if err != nil {
				return err
			}
			rest = rest[n:]
		}
	}
	if err := unix.Shutdown(conn, unix.SHUT_WR); err != nil {
		return err
	}
	if n, err := unix.Read(conn, data); n != 1 {
		return errors.Join(io.ErrUnexpectedEOF, err)
	}
	return nil
}

// sinkPort is the port of an application that answers with one byte once its client has sent all.
const sinkPort = 9

func newJourney(b *testing.B, name string, from, to *nodes.Place) journey {
	b.Helper()
	for port, answer := range map[int]func(net.Conn){
		talk.Port: func(conn net.Conn) { _, _ = io.Copy(conn, conn) },
		sinkPort: func(conn net.Conn) {
			if _, err := io.Copy(io.Discard, conn); err == nil {
				_, _ = conn.Write([]byte{1})
			}
		},
	} {
		accept(b, to, port, new(net.ListenConfig), answer)
	}
	roomForPorts(b, from, 20000)
	return journey{name, from, to.Addresses[0]}
}

// accept answers connections in a place until the benchmark ends.
func accept(b *testing.B, place *nodes.Place, port int, config *net.ListenConfig, answer func(net.Conn)) {
	b.Helper()
	var listener net.Listener
	if err := namespace.Run(place.Netns.File(), func() (err error) {
		listener, err = config.Listen(b.Context(), "tcp4", net.JoinHostPort("", strconv.Itoa(port)))
		return err
	}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() }) // it ends the loop
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn)
			}()
		}
	}()
}
