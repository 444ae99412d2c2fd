// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// Socket gives access to the rtnetlink and the sysctls of a network namespace, for one goroutine at
// a time.
type Socket struct {
	namespace kernel.Namespace
	client    *kernel.Client
	labels    bool // the kernel keeps the protocol of an address
	others    []Other
}

// Dial opens a socket in a namespace. Links may lead to the others.
func Dial(in kernel.Namespace, others ...Other) (*Socket, error) {
	labels, err := labelsAddresses()
	if err != nil {
		return nil, err
	}
	conn, err := in.Dial(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink: %w", err)
	}
	return &Socket{namespace: in, client: kernel.NewClient(conn), labels: labels, others: others}, nil
}

// Close closes the socket.
func (s *Socket) Close() { _ = s.client.Close() }

// labelsAddresses reports whether this machine's kernel keeps the protocol of an address.
func labelsAddresses() (bool, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false, fmt.Errorf("ask for the kernel's version: %w", err)
	}
	return releaseLabelsAddresses(unix.ByteSliceToString(name.Release[:]))
}

// releaseLabelsAddresses reports whether a kernel of a release, such as "6.1.0-13-amd64", keeps the
// protocol of an address: IFA_PROTO exists since Linux 5.18, and older kernels ignore it silently.
func releaseLabelsAddresses(release string) (bool, error) {
	first, rest, _ := strings.Cut(release, ".")
	second := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	major, err := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(second)
	if err := errors.Join(err, err2); err != nil {
		return false, fmt.Errorf("read the kernel's version %q: %w", release, err)
	}
	return major > 5 || major == 5 && minor >= 18, nil
}

// list requests all objects of a kind by a header of that kind (rtnetlink(7)), and returns what
// follows the netlink header of each.
func (s *Socket) list(kind uint16, header []byte) ([][]byte, error) {
	return s.client.Ask(kernel.Request{Kind: kind, Flags: unix.NLM_F_DUMP, Body: header})
}

// each calls read for each object of a list, with a header as long as the request's.
func (s *Socket) each(kind uint16, header []byte, read func(message, header []byte, d *netlink.AttributeDecoder)) error {
	messages, err := s.list(kind, header)
	if err != nil {
		return err
	}
	for _, m := range messages {
		own, d, err := decode(m, len(header))
		if err != nil {
			return err
		}
		read(m, own, d)
		if err := d.Err(); err != nil {
			return err
		}
	}
	return nil
}

// send sends a message that changes something. It may be a message that the kernel sent: whatever
// it describes is added or deleted.
func (s *Socket) send(kind, flags uint16, body []byte) error {
	_, err := s.client.Ask(kernel.Request{Kind: kind, Flags: flags, Body: slices.Clone(body)})
	return err
}

// decode splits what follows a netlink header into a header of the given size and attributes.
func decode(data []byte, size int) ([]byte, *netlink.AttributeDecoder, error) {
	if len(data) < size {
		return nil, nil, fmt.Errorf("netlink answer: %d bytes hold no header of %d", len(data), size)
	}
	d, err := netlink.NewAttributeDecoder(data[size:])
	if err != nil {
		return nil, nil, fmt.Errorf("netlink answer: %w", err)
	}
	return data[:size], d, nil
}

// extras are what an object of the kernel has beyond what plans have, as text; "" is nothing.
type extras string

func (e *extras) add(name, value string) {
	if *e != "" {
		*e += ", "
	}
	*e += extras(name + " " + value)
}

// byte adds a number that is 0 in objects of plans.
func (e *extras) byte(name string, value byte) {
	if value != 0 {
		e.add(name, strconv.Itoa(int(value)))
	}
}

// attribute adds an attribute that objects of plans do not have.
func (e *extras) attribute(kind uint16, value []byte) {
	e.add("attribute "+strconv.Itoa(int(kind)), hex.EncodeToString(value))
}
