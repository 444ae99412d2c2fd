// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	mdlayher "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
)

// Other is another network namespace, to which links of a plan may lead.
type Other struct {
	// Label is the name that plans have for it.
	Label string
	// File is its open descriptor.
	File *os.File
	// Namespace gives access to it.
	Namespace kernel.Namespace
}

// otherFound is another namespace with its links.
type otherFound struct {
	Other

	id    int // which the kernel shows with the links that lead there; -1 if none does
	links []netlink.Link
}

// scanOthers reads the links of all other namespaces.
func (s *Socket) scanOthers() (all []otherFound, err error) {
	for _, o := range s.others {
		f := otherFound{Other: o}
		if f.links, err = o.listLinks(); err == nil {
			f.id, err = s.idOf(o)
		}
		if err != nil {
			return nil, fmt.Errorf("the namespace labelled %q: %w", o.Label, err)
		}
		all = append(all, f)
	}
	return all, nil
}

func (o Other) listLinks() ([]netlink.Link, error) {
	there, err := Dial(o.Namespace)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	return there.listLinks()
}

// open calls a function with the descriptor, which stays open meanwhile.
func (o Other) open(do func(fd int) error) error {
	connection, err := o.File.SyscallConn()
	if err != nil {
		return fmt.Errorf("the namespace labelled %q: %w", o.Label, err)
	}
	var done error
	if err := connection.Control(func(fd uintptr) { done = do(int(fd)) }); err != nil {
		return fmt.Errorf("the namespace labelled %q: %w", o.Label, err)
	}
	return done
}

// idOf returns the number by which the socket's namespace knows the other one; -1 if it has none.
func (s *Socket) idOf(o Other) (id int, err error) {
	id = -1
	var answers [][]byte
	err = o.open(func(fd int) error {
		e := mdlayher.NewAttributeEncoder()
		e.Uint32(unix.NETNSA_FD, uint32(fd))
		attributes, err := e.Encode()
		if err != nil {
			return fmt.Errorf("encode a descriptor: %w", err)
		}
		answers, err = s.client.Ask(kernel.Request{Kind: unix.RTM_GETNSID, Body: append(make([]byte, familyHeader), attributes...)})
		return err
	})
	if err != nil {
		return id, fmt.Errorf("ask for its number: %w", err)
	}
	for _, answer := range answers {
		_, d, err := decode(answer, familyHeader)
		if err != nil {
			return id, err
		}
		for d.Next() {
			if d.Type() == unix.NETNSA_NSID && len(d.Bytes()) == 4 {
				id = int(int32(binary.NativeEndian.Uint32(d.Bytes())))
			}
		}
		if err := d.Err(); err != nil {
			return id, fmt.Errorf("netlink answer: %w", err)
		}
	}
	return id, nil
}

// familyHeader is the size of struct rtgenmsg, with padding.
const familyHeader = 4

// other returns the namespace with a label.
func (f found) other(label string) (otherFound, error) {
	i := slices.IndexFunc(f.others, func(o otherFound) bool { return o.Label == label })
	if i < 0 {
		return otherFound{}, fmt.Errorf("no namespace is labelled %q: %w", label, interception.ErrNotNetns)
	}
	return f.others[i], nil
}

func (o otherFound) link(name interception.Interface) netlink.Link { return linkOf(o.links, name) }

func linkOf(links []netlink.Link, name interception.Interface) netlink.Link {
	i := slices.IndexFunc(links, func(l netlink.Link) bool { return nameOf(l) == name })
	if i < 0 {
		return nil
	}
	return links[i]
}

// veth returns the other end of a pair of interfaces, or that it is nowhere where plans can refer
// to it.
func (f found) veth(have *netlink.Veth) (*interception.Veth, []string) {
	for _, o := range f.others {
		if peer := o.peer(have); peer != nil {
			return &interception.Veth{Peer: nameOf(peer), Namespace: o.Label}, nil
		}
	}
	return &interception.Veth{}, []string{"whose other end is in no namespace that the caller has labelled"}
}

// peer returns the other end of a pair; nil if it is not known.
func (f found) peer(have netlink.Link) netlink.Link {
	for _, o := range f.others {
		if peer := o.peer(have); peer != nil {
			return peer
		}
	}
	return nil
}

// peer returns the other end of a pair if it is in this namespace.
func (o otherFound) peer(have netlink.Link) netlink.Link {
	if have.Type() != "veth" || o.id < 0 || have.Attrs().NetNsID != o.id {
		return nil
	}
	i := slices.IndexFunc(o.links, func(l netlink.Link) bool { return l.Attrs().Index == have.Attrs().ParentIndex })
	if i < 0 {
		return nil
	}
	return o.links[i]
}

// peerChanges returns the step that makes the other end of a pair equal the plan's.
func (c *Change) peerChanges(have netlink.Link, l interception.Link) []step {
	peer := c.found.peer(have)
	mtu := have.Attrs().MTU
	if l.MTU != 0 {
		mtu = l.MTU
	}
	if peer == nil || isUp(peer) && peer.Attrs().MTU == mtu {
		return nil
	}
	return []step{{
		do:   func() error { return c.setPeer(l, mtu) },
		undo: func() error { return gone(c.setPeer(l, peer.Attrs().MTU)) },
	}}
}

// setPeer sets the other end of a pair up, with an MTU unless that is 0.
func (c *Change) setPeer(l interception.Link, mtu int) error {
	other, err := c.found.other(l.Veth.Namespace)
	if err != nil {
		return err
	}
	links, err := other.listLinks()
	if err != nil {
		return fmt.Errorf("the namespace labelled %q: %w", other.Label, err)
	}
	peer := linkOf(links, l.Veth.Peer)
	if peer == nil {
		return fmt.Errorf("interface %s in the namespace labelled %q: %w", l.Veth.Peer, other.Label, unix.ENODEV)
	}
	return other.Namespace.Change("set link "+string(l.Veth.Peer), func() error {
		var err error
		if mtu != 0 && mtu != peer.Attrs().MTU {
			err = netlink.LinkSetMTU(peer, mtu)
		}
		return errors.Join(err, netlink.LinkSetUp(peer))
	})
}
