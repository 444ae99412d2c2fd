// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/namespace"
)

// Socket talks to the rtnetlink of one network namespace, and knows the way to its sysctls. It is for one goroutine at a time.
type Socket struct {
	namespace *os.File
	fd        int
	labels    bool // the kernel keeps the protocol of an address
}

// Open opens a socket in the network namespace of an open descriptor, which stays the caller's and is to be open as long.
func Open(in *os.File) (*Socket, error) {
	labels, err := labelsAddresses()
	if err != nil {
		return nil, err
	}
	s := &Socket{namespace: in, labels: labels}
	if err := namespace.Run(in, s.open); err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	return s, nil
}

func (s *Socket) open() (err error) {
	if s.fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE); err != nil {
		return err
	}
	// Extended acknowledgements explain errors; capped ones do not quote the message.
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, option, 1); err != nil {
			s.Close()
			return fmt.Errorf("set option %d: %w", option, err)
		}
	}
	return nil
}

// Close closes the socket.
func (s *Socket) Close() { _ = unix.Close(s.fd) }

// labelsAddresses asks which kernel this is: IFA_PROTO is there since Linux 5.18, and older ones pass over it without a word.
func labelsAddresses() (bool, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false, fmt.Errorf("ask for the kernel's version: %w", err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	first, rest, _ := strings.Cut(release, ".")
	second := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	major, err := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(second)
	if err := errors.Join(err, err2); err != nil {
		return false, fmt.Errorf("read the kernel's version %q: %w", release, err)
	}
	return major > 5 || major == 5 && minor >= 18, nil
}
