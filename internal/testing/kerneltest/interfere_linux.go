// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// Call is a request to the kernel: for a socket, with a datagram, or about a sysctl.
type Call struct {
	// What names the call.
	What string
	// Kinds are the kinds of the messages of a datagram; nil for the other calls.
	Kinds []uint16

	datagram []byte
	change   bool // by the library
}

// Transaction reports whether a call is a batch of messages that are committed together.
func (c Call) Transaction() bool { return len(c.Kinds) > 1 }

// Changes reports whether a call changes anything.
func (c Call) Changes() bool {
	rtnetlink := len(c.Kinds) == 1 && c.Kinds[0] < 1<<8 // netfilter has the subsystem there
	return c.change || c.Transaction() || strings.HasPrefix(c.What, "write ") || rtnetlink && c.Kinds[0]%4 != unix.RTM_GETLINK%4
}

// spoil gives a message a kind that no subsystem has, so that the kernel refuses the datagram.
func (c Call) spoil(message int) {
	at := 0
	for range message {
		at += messageSize(c.datagram[at:])
	}
	c.datagram[at+4] = 0xff
}

// messageSize returns the size of the first of some messages, with its padding.
func messageSize(messages []byte) int {
	return (int(binary.NativeEndian.Uint32(messages)) + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
}

// Interfere returns a namespace that runs meet in place of each call to the kernel: meet's error is
// the caller's, and do passes the call on.
func Interfere(with kernel.Namespace, meet func(c Call, do func() error) error) kernel.Namespace {
	return &interference{Namespace: with, meet: func(c Call, do func() error, _ *conn) error { return meet(c, do) }}
}

type interference struct {
	kernel.Namespace
	meet func(c Call, do func() error, by *conn) error // by is nil unless a datagram is sent
}

func (i *interference) Dial(protocol int) (kernel.Conn, error) {
	c := &conn{with: i}
	err := i.meet(Call{What: fmt.Sprintf("dial %d", protocol)}, func() (err error) {
		c.Conn, err = i.Namespace.Dial(protocol)
		return err
	}, nil)
	return c, err
}

func (i *interference) ReadSysctl(key string) (value string, err error) {
	err = i.meet(Call{What: "read " + key}, func() error {
		value, err = i.Namespace.ReadSysctl(key)
		return err
	}, nil)
	return value, err
}

func (i *interference) WriteSysctl(key, value string) error {
	return i.meet(Call{What: "write " + key + " " + value}, func() error { return i.Namespace.WriteSysctl(key, value) }, nil)
}

func (i *interference) Change(what string, change func() error) error {
	return i.meet(Call{What: what, change: true}, func() error { return i.Namespace.Change(what, change) }, nil)
}

type conn struct {
	kernel.Conn
	with *interference
	lose bool // the answers to what is sent next
}

func (c *conn) Send(datagram []byte) error {
	call := Call{datagram: slices.Clone(datagram)}
	for rest := call.datagram; len(rest) >= unix.SizeofNlMsghdr; {
		call.Kinds = append(call.Kinds, binary.NativeEndian.Uint16(rest[4:]))
		rest = rest[min(len(rest), messageSize(rest)):]
	}
	call.What = fmt.Sprintf("send %#x", call.Kinds[0])
	if call.Transaction() {
		call.What = fmt.Sprintf("transaction of %d", len(call.Kinds))
	}
	return c.with.meet(call, func() error { return c.Conn.Send(call.datagram) }, c)
}

// Receive loses answers as the kernel does when it has no memory for them.
func (c *conn) Receive() ([]byte, error) {
	if !c.lose {
		return c.Conn.Receive()
	}
	c.lose = false
	for {
		if _, err := c.Conn.Receive(); err != nil {
			return nil, unix.ENOBUFS
		}
	}
}
