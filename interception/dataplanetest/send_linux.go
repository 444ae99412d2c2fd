// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errLost is a failure of the harness, not of the dataplane.
var errLost = errors.New("the connection was made, but what it carries reached no listener of the harness: " +
	"a rule drops it, or another program listens")

// sending is a probe on its way. When its sender has received nothing for the time of the silence,
// it checks in the kernel whether packets are still on their way.
type sending struct {
	*network
	probe   Probe
	silence time.Duration
}

// send sends a probe and waits for its end.
func (n *network) send(ctx context.Context, p Probe, silence time.Duration) (_ Observation, err error) {
	from, release, err := n.sender(ctx, p)
	if err != nil {
		return Observation{}, err
	}
	defer func() { err = errors.Join(err, release()) }()
	socket, err := from.newSocket(p)
	if err != nil {
		return Observation{}, err
	}
	defer func() { _ = socket.Close() }() // nothing is left to be written
	a, err := sending{n, p, silence}.sendFrom(ctx, socket, false)
	return a.Observation, err
}

// keep opens a connection that stays.
func (n *network) keep(ctx context.Context, p Probe, silence time.Duration) (_ *Connection, err error) {
	from, release, err := n.sender(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	socket, err := from.newSocket(p)
	if err != nil {
		return nil, err
	}
	a, err := sending{n, p, silence}.sendFrom(ctx, socket, true)
	switch {
	case err != nil:
	case a.kept == nil || !a.Answered:
		err = fmt.Errorf("the probe was %s", a.Observation)
	default:
		var local unix.Sockaddr
		if local, err = localAddress(socket); err == nil {
			return &Connection{
				Probe: p, Observation: a.Observation, Local: sender(local), ends: [2]end{socket, a.kept}, silence: n.relayed(silence), settle: n.settle,
			}, nil
		}
	}
	return nil, errors.Join(err, socket.Close())
}

// localAddress returns a socket's own address (getsockname(2)).
func localAddress(socket *os.File) (address unix.Sockaddr, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	var answer error
	err = raw.Control(func(fd uintptr) { address, answer = unix.Getsockname(int(fd)) })
	return address, errors.Join(err, answer)
}

// sender returns where a probe starts. Until release is called, a listener elsewhere accepts a
// probe from the pod.
func (n *network) sender(ctx context.Context, p Probe) (_ *endpoint, release func() error, err error) {
	from := map[Place]*endpoint{InPod: n.pod, InMachine: n.machine}[p.From]
	switch {
	case p.From == InMachine && from == nil:
		return nil, nil, fmt.Errorf("%w: From is the machine, and PodOptions.MachineLink is empty", ErrProbe)
	case from != nil:
		release, err = n.elsewhere.listen(ctx, p.Protocol, p.Dst.Port())
		return from, release, err
	}
	if !n.hasAddress(p.Dst.Addr()) {
		return nil, nil, fmt.Errorf("%w: Dst is not an address of %s in the pod", ErrProbe, eth0)
	}
	return n.elsewhere, func() error { return nil }, nil
}

func (s sending) sendFrom(ctx context.Context, socket *os.File, stays bool) (arrival, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.relayed(s.silence)+answerWithin, errLost)
	defer cancel()
	// The end of ctx ends every wait for the socket.
	defer context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Unix(1, 0)) })()

	if err := s.connect(ctx, socket); err != nil {
		return ended(ctx, err)
	}
	whose, arrived := s.mail.expect()
	defer s.mail.forget(whose)
	if stays {
		s.mail.stay(whose)
	}
	// EPERM: a filter stopped an outgoing datagram. An ICMP error may still follow.
	if _, err := socket.Write(whose[:]); err != nil && !errors.Is(err, unix.EPERM) {
		return ended(ctx, err)
	}
	if s.probe.Protocol == UDP {
		return s.awaitDatagram(ctx, socket, whose, arrived)
	}
	select {
	case a := <-arrived:
		if a.err != nil {
			return arrival{}, a.err
		}
		var err error
		if a.Answered, err = s.hears(ctx, socket, whose, s.relayed(s.silence)); errors.As(err, &unsettledError{}) {
			return a, err
		}
		return a, context.Cause(ctx)
	case <-ctx.Done():
		return arrival{}, context.Cause(ctx)
	}
}

// relayed returns how long to wait for what comes over TCP, where a silence is not expected.
func (n *network) relayed(silence time.Duration) time.Duration {
	if silence == 0 {
		return 0
	}
	return max(silence, n.relayedWithin)
}

// hears reports whether the answer comes, which may be on its way, or returns the error that the
// socket gets instead.
func (s sending) hears(ctx context.Context, socket *os.File, want nonce, silence time.Duration) (bool, error) {
	if err := setDeadline(ctx, socket, time.Now().Add(silence)); err != nil {
		return false, err
	}
	var got nonce
	n, err := socket.Read(got[:])
	if errors.Is(err, os.ErrDeadlineExceeded) {
		n, err = s.received(ctx, socket, got[:])
	}
	return err == nil && n == len(got) && got == want, err
}

// received is [pending] after everything sent has been delivered: the datagrams first, then the
// answers of their receivers.
func (s sending) received(ctx context.Context, socket *os.File, into []byte) (n int, _ error) {
	if err := s.settle(ctx); err != nil {
		return 0, unsettledError{err}
	}
	s.pod.drain()
	s.elsewhere.drain()
	if err := s.settle(ctx); err != nil {
		return 0, unsettledError{err}
	}
	return pending(socket, into)
}

// unsettledError is a failure to wait for the kernel. It hides its cause, which must not be
// mistaken for the probe's result.
type unsettledError struct{ cause error }

func (e unsettledError) Error() string {
	return fmt.Sprintf("wait for packets on their way: %v", e.cause)
}

// pending returns what the kernel holds for a socket, even if its goroutine was delayed: data, the
// error that its next call would return, or os.ErrDeadlineExceeded for neither. A read with a
// deadline that begins too late does not reach the kernel.
func pending(socket syscall.Conn, into []byte) (n int, _ error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var answer error
	if err := raw.Control(func(fd uintptr) { n, _, answer = unix.Recvfrom(int(fd), into, unix.MSG_DONTWAIT) }); err != nil {
		return 0, err
	}
	if answer != nil {
		n = 0
	}
	if errors.Is(answer, unix.EAGAIN) {
		answer = os.ErrDeadlineExceeded
	}
	return n, answer
}

// connect connects a socket, and returns when the kernel has decided. Silence is
// os.ErrDeadlineExceeded.
func (s sending) connect(ctx context.Context, socket *os.File) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var answer error
	if err := raw.Control(func(fd uintptr) { answer = unix.Connect(int(fd), sockaddr(s.probe.Dst)) }); err != nil {
		return err
	}
	if !errors.Is(answer, unix.EINPROGRESS) {
		return answer
	}
	if err := setDeadline(ctx, socket, time.Now().Add(s.silence)); err != nil {
		return err
	}
	silent := raw.Write(func(fd uintptr) (done bool) {
		done, answer = connected(int(fd))
		return done
	})
	if silent == nil {
		return errors.Join(answer, setDeadline(ctx, socket, time.Time{}))
	}
	if err := s.settle(ctx); err != nil {
		return unsettledError{err}
	}
	done := false // only the kernel's present state counts
	if err := raw.Control(func(fd uintptr) { done, answer = connected(int(fd)) }); err != nil {
		return err
	}
	if done {
		return errors.Join(answer, setDeadline(ctx, socket, time.Time{}))
	}
	return silent
}

// connected reports whether the kernel has decided about a connection, and how.
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

// awaitDatagram waits for a datagram's arrival and for its answer, or for an ICMP error, which the
// next read returns.
func (s sending) awaitDatagram(ctx context.Context, socket *os.File, whose nonce, arrived <-chan arrival) (arrival, error) {
	answered, err := s.hears(ctx, socket, whose, s.silence)
	select {
	case a := <-arrived:
		a.Answered = answered
		return a, errors.Join(a.err, context.Cause(ctx))
	default:
	}
	if !answered {
		return ended(ctx, err)
	}
	select { // the answer was faster than the report of the arrival
	case a := <-arrived:
		a.Answered = true
		return a, a.err
	case <-ctx.Done():
		return arrival{}, context.Cause(ctx)
	}
}

// setDeadline sets a socket's deadline. It may have overwritten the deadline set at the end of ctx,
// so it checks ctx afterwards.
func setDeadline(ctx context.Context, socket *os.File, deadline time.Time) error {
	if err := socket.SetDeadline(deadline); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// ended returns the meaning of an error of the sending socket.
func ended(ctx context.Context, err error) (arrival, error) {
	var code unix.Errno
	switch {
	case ctx.Err() != nil:
		return arrival{}, context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return arrival{Observation: Observation{Verdict: Dropped}}, nil
	case errors.As(err, &code):
		return arrival{Observation: Observation{Verdict: Refused, Err: code}}, nil
	}
	return arrival{}, err
}
