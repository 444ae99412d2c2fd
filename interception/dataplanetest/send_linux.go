// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// errLost is a failure of the harness, not of the dataplane.
var errLost = errors.New("the connection was made, but what it carries reached no listener of the harness: " +
	"a rule drops it, or somebody else listens")

// send sends a probe and waits for its end.
func (n *network) send(ctx context.Context, p Probe) (_ Observation, err error) {
	if p.From == Elsewhere {
		if !n.hasAddress(p.Dst.Addr()) {
			return Observation{}, fmt.Errorf("%w: Dst is no address of %s in the pod", ErrProbe, eth0)
		}
		return n.sendFrom(ctx, n.elsewhere, p)
	}
	release, err := n.elsewhere.listen(ctx, p.Protocol, p.Dst.Port())
	if err != nil {
		return Observation{}, err
	}
	defer func() { err = errors.Join(err, release()) }()
	return n.sendFrom(ctx, n.pod, p)
}

func (n *network) sendFrom(ctx context.Context, from *endpoint, p Probe) (Observation, error) {
	socket, err := from.newSocket(p)
	if err != nil {
		return Observation{}, err
	}
	defer func() { _ = socket.Close() }() // nothing is left to be written
	ctx, cancel := context.WithTimeoutCause(ctx, n.dropAfter+answerWithin, errLost)
	defer cancel()
	// The end of ctx ends every wait for the socket.
	defer context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Unix(1, 0)) })()

	if err := n.connect(ctx, socket, p); err != nil {
		return ended(ctx, err)
	}
	whose, arrived := n.mail.expect()
	defer n.mail.forget(whose)
	// EPERM: a filter stopped a datagram on its way out. Whether the sender is told more, by an ICMP error, remains to be seen.
	if _, err := socket.Write(whose[:]); err != nil && !errors.Is(err, unix.EPERM) {
		return ended(ctx, err)
	}
	if p.Protocol == TCP {
		select {
		case a := <-arrived:
			return a.Observation, a.err
		case <-ctx.Done():
			return Observation{}, context.Cause(ctx)
		}
	}
	return n.awaitDatagram(ctx, socket, arrived)
}

// connect connects a socket, and is done when the kernel has made up its mind. Silence is os.ErrDeadlineExceeded.
func (n *network) connect(ctx context.Context, socket *os.File, p Probe) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var answer error
	if err := raw.Control(func(fd uintptr) { answer = unix.Connect(int(fd), sockaddr(p.Dst)) }); err != nil {
		return err
	}
	if !errors.Is(answer, unix.EINPROGRESS) {
		return answer
	}
	if err := setDeadline(ctx, socket, time.Now().Add(n.dropAfter)); err != nil {
		return err
	}
	silent := raw.Write(func(fd uintptr) (done bool) {
		done, answer = connected(int(fd))
		return done
	})
	if silent == nil {
		return errors.Join(answer, setDeadline(ctx, socket, time.Time{}))
	}
	// Time may have passed without this goroutine. What counts is what the kernel knows now.
	done := false
	if err := raw.Control(func(fd uintptr) { done, answer = connected(int(fd)) }); err != nil {
		return err
	}
	if done {
		return errors.Join(answer, setDeadline(ctx, socket, time.Time{}))
	}
	return silent
}

// connected tells whether the kernel has made up its mind about a connection, and how.
func connected(fd int) (done bool, _ error) {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return true, err
	}
	if code != 0 {
		return true, unix.Errno(code)
	}
	_, err = unix.Getpeername(fd)
	return err == nil, nil
}

// awaitDatagram waits for a datagram's arrival, or for an ICMP error, which the next read returns.
func (n *network) awaitDatagram(ctx context.Context, socket *os.File, arrived <-chan arrival) (Observation, error) {
	if err := setDeadline(ctx, socket, time.Now().Add(n.dropAfter)); err != nil {
		return Observation{}, err
	}
	refused := make(chan error, 1)
	go func() {
		_, err := socket.Read(make([]byte, 1))
		refused <- err
	}()
	select {
	case a := <-arrived:
		return a.Observation, a.err
	case err := <-refused:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return ended(ctx, err)
		}
	}
	// As with connections: what counts is what the kernel knows now.
	n.pod.drain()
	n.elsewhere.drain()
	select {
	case a := <-arrived:
		return a.Observation, a.err
	default:
		return ended(ctx, pending(socket))
	}
}

// pending is the error that a socket's next call would return; without one it is os.ErrDeadlineExceeded.
func pending(socket *os.File) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var code int
	var answer error
	if err := raw.Control(func(fd uintptr) { code, answer = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) }); err != nil {
		return err
	}
	switch {
	case answer != nil:
		return answer
	case code != 0:
		return unix.Errno(code)
	}
	return os.ErrDeadlineExceeded
}

// setDeadline sets a socket's deadline. It may have overwritten that which the end of ctx set, and so looks for it.
func setDeadline(ctx context.Context, socket *os.File, deadline time.Time) error {
	if err := socket.SetDeadline(deadline); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// ended is what an error of the sending socket means.
func ended(ctx context.Context, err error) (Observation, error) {
	var code unix.Errno
	switch {
	case ctx.Err() != nil:
		return Observation{}, context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Observation{Verdict: Dropped}, nil
	case errors.As(err, &code):
		return Observation{Verdict: Refused, Err: code}, nil
	}
	return Observation{}, err
}
