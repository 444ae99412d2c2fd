// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hops is how often settle empties the kernel's queues. A packet is in one of them at each link on
// its way, and its answer at each link back. The longest way has eight: a connection of the machine
// goes through the pod to elsewhere and its answer comes back, and both machine and pod ask for
// their neighbour's link address first.
const hops = 12

// settle sends a datagram to itself elsewhere, from each processor in turn, and waits for it each
// time. The virtual links of all namespaces share one queue for each processor, which is first in,
// first out (struct softnet_data, input_pkt_queue). When the datagram arrives, the packets before
// it in this queue have been received, and the kernel's answers are in a queue in their turn.
func (n *network) settle(ctx context.Context) (err error) {
	s, err := n.elsewhere.newSentinel()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(s.fd)) }()

	return onEachProcessor(hops, func() error { return s.pass(ctx) })
}

// mostProcessors is the capacity of a CPUSet.
const mostProcessors = int(unsafe.Sizeof(unix.CPUSet{})) * 8

// onEachProcessor calls f a number of times on each processor that this process may use.
func onEachProcessor(times int, f func() error) (err error) {
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("list processors: %w", err)
	}
	defer func() {
		back := unix.SchedSetaffinity(0, &all)
		if back == nil { // else the thread ends with its goroutine
			runtime.UnlockOSThread()
		}
		err = errors.Join(err, back)
	}()
	for range times {
		for processor := range mostProcessors {
			if !all.IsSet(processor) {
				continue
			}
			one.Zero()
			one.Set(processor)
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				return fmt.Errorf("go to processor %d: %w", processor, err)
			}
			if err := f(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sentinel is a UDP socket that is connected to itself.
type sentinel struct {
	fd     int
	number uint64 // of the latest datagram
}

func (e *endpoint) newSentinel() (*sentinel, error) {
	s := &sentinel{}
	err := e.namespace.Do(func() (err error) {
		s.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = unix.Bind(s.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		var self unix.Sockaddr
		if self, err = unix.Getsockname(s.fd); err == nil {
			err = unix.Connect(s.fd, self)
		}
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(s.fd))
	}
	return s, nil
}

// resendAfter is the time in milliseconds after which a missing datagram is sent again: a full
// queue loses it.
const resendAfter = 1000

// pass sends a datagram and waits until it has arrived.
func (s *sentinel) pass(ctx context.Context) error {
	for ctx.Err() == nil {
		s.number++
		if _, err := unix.Write(s.fd, binary.BigEndian.AppendUint64(nil, s.number)); err != nil {
			return err
		}
		if arrived, err := s.await(); arrived || err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// await reports whether the latest datagram arrives in time.
func (s *sentinel) await() (bool, error) {
	var got [8]byte
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, resendAfter)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || ready == 0:
			return false, err
		}
		if _, err := unix.Read(s.fd, got[:]); err != nil {
			return false, err
		}
		if binary.BigEndian.Uint64(got[:]) == s.number {
			return true, nil
		}
	}
}
