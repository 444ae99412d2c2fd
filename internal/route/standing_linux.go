// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// Others returns the links, addresses, routes and policy rules that are not the owner's, in the
// order of plans and in their form. What such an object has beyond that is left out.
func (s *Socket) Others(owner Owner) (all []interception.Object, err error) {
	f, err := s.scan()
	if err != nil {
		return nil, err
	}
	o := observation{owner: owner, found: f}
	for _, have := range f.links {
		if link, _ := f.link(have); !owner.owns(have) {
			all = append(all, link)
		}
	}
	for _, have := range f.addresses {
		if have.protocol != owner.Protocol {
			all = append(all, interception.Address{Device: f.deviceName(have.index), Prefix: have.prefix})
		}
	}
	for _, have := range f.routes {
		if r, _ := o.route(have.route); have.protocol != owner.Protocol {
			all = append(all, r)
		}
	}
	for _, have := range f.rules {
		if r, _ := o.rule(have); have.protocol != owner.Protocol {
			all = append(all, r)
		}
	}
	return all, nil
}

// RemoveSame removes the tunnels, routes and policy rules that are the same as these, whichever
// program made them, the last one first. A tunnel is the same if it has the name, the VNI, the port
// and the remote end, whatever its kind. Objects that are not there, and those of other kinds, are
// skipped. RemoveSame stops at the first error, and may be repeated.
func (s *Socket) RemoveSame(objects []interception.Object) error {
	f, err := s.scan()
	if err != nil {
		return err
	}
	for _, object := range slices.Backward(objects) {
		switch object := object.(type) {
		case interception.Link:
			err = s.removeTunnel(f, object)
		case interception.Route:
			err = s.removeRoute(f, object)
		case interception.PolicyRule:
			err = s.removeRule(f, object)
		}
		if gone(err) != nil {
			return fmt.Errorf("remove %s: %w", textOf(object), err)
		}
	}
	return nil
}

func (s *Socket) removeTunnel(f found, l interception.Link) error {
	have := linkOf(f.links, l.Name)
	if have == nil {
		return nil
	}
	if was, _ := f.link(have); farEnd(l) == (tunnel{}) || farEnd(was) != farEnd(l) {
		return nil
	}
	return s.namespace.Change("delete link "+string(l.Name), func() error { return netlink.LinkDel(have) })
}

func (s *Socket) removeRoute(f found, r interception.Route) error {
	o := observation{found: f}
	for _, have := range f.routes {
		if was, more := o.route(have.route); len(more) == 0 && textOf(was) == textOf(r) {
			return s.send(unix.RTM_DELROUTE, 0, have.raw)
		}
	}
	return nil
}

func (s *Socket) removeRule(f found, r interception.PolicyRule) error {
	o := observation{found: f}
	for _, have := range f.rules {
		if was, more := o.rule(have); len(more) == 0 && textOf(was) == textOf(r) {
			return s.send(unix.RTM_DELRULE, 0, have.raw)
		}
	}
	return nil
}
