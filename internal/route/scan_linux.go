// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/interception"
)

// kinds says which kinds of objects are of interest.
type kinds struct {
	addresses, routes, rules bool
}

// kindsOf are those that a plan has.
func kindsOf(p *interception.Plan) kinds {
	var k kinds
	for _, object := range p.Objects {
		switch object.(type) {
		case interception.Address:
			k.addresses = true
		case interception.Route:
			k.routes = true
		case interception.PolicyRule:
			k.rules = true
		}
	}
	return k
}

// OnlyRules reports whether a plan has nothing that stands before its rules.
func OnlyRules(p *interception.Plan) bool {
	for _, object := range p.Objects {
		switch object.(type) {
		case interception.Set, interception.Table:
		default:
			return false
		}
	}
	return true
}

// found is what stands in the namespace, of all owners.
type found struct {
	links     []netlink.Link
	addresses []address
	routes    []foundRoute
	rules     []foundRule
}

// scan looks at the links, and at the given kinds.
func (s *Socket) scan(k kinds) (f found, err error) {
	if f.links, err = s.listLinks(); err != nil {
		return found{}, fmt.Errorf("list links: %w", err)
	}
	if k.addresses {
		if f.addresses, err = s.listAddresses(); err != nil {
			return found{}, fmt.Errorf("list addresses: %w", err)
		}
	}
	if k.routes {
		if f.routes, err = s.listRoutes(); err != nil {
			return found{}, fmt.Errorf("list routes: %w", err)
		}
	}
	if k.rules {
		if f.rules, err = s.listRules(); err != nil {
			return found{}, fmt.Errorf("list policy rules: %w", err)
		}
	}
	return f, nil
}

// deviceName is the name of the interface with an index; "" when there is none.
func (f found) deviceName(index uint32) interception.Interface {
	for _, l := range f.links {
		if l.Attrs().Index == int(index) {
			return nameOf(l)
		}
	}
	return ""
}

// device is the index of an interface: one that was found or, made meanwhile, is one of the plan.
func (c *Change) device(name interception.Interface) (uint32, error) {
	l, err := c.linkNamed(name)
	if err != nil {
		return 0, err
	}
	return uint32(l.Attrs().Index), nil
}
