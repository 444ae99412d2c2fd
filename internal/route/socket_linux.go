// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// Socket talks to the rtnetlink of one network namespace, and knows the way to its sysctls. It is for one goroutine at a time.
type Socket struct {
	namespace kernel.Namespace
	client    *kernel.Client
	labels    bool // the kernel keeps the protocol of an address
}

// Open opens a socket in the network namespace of an open descriptor, which stays the caller's and is to be open as long.
func Open(in *os.File) (*Socket, error) { return Dial(kernel.Of(in)) }

// Dial opens a socket in a namespace.
func Dial(in kernel.Namespace) (*Socket, error) {
	labels, err := labelsAddresses()
	if err != nil {
		return nil, err
	}
	conn, err := in.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	return &Socket{namespace: in, client: kernel.NewClient(conn), labels: labels}, nil
}

// Close closes the socket.
func (s *Socket) Close() { _ = s.client.Close() }

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
