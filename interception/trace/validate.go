// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Validate returns the error that [Trace] would return for a world that could not exist; nil if it
// could.
func (w World) Validate() error {
	_, err := w.networks()
	return err
}

// networks returns every namespace of the world with its plans, or why the world could not exist.
func (w World) networks() ([]*network, error) {
	if len(w.Namespaces) == 0 {
		return nil, fmt.Errorf("%w: it has no namespace: Sidecar makes one of a plan", ErrWorld)
	}
	networks := make([]*network, len(w.Namespaces))
	for i, n := range w.Namespaces {
		if slices.IndexFunc(w.Namespaces, func(o Namespace) bool { return o.Name == n.Name }) != i {
			return nil, fmt.Errorf("%w: two namespaces are called %q: give each its own name", ErrWorld, n.Name)
		}
		var err error
		if networks[i], err = n.checked(); err != nil {
			return nil, fmt.Errorf("%w: namespace %q: %w", ErrWorld, n.Name, err)
		}
	}
	return networks, nil
}

// checked returns the namespace with its plans, if it could exist.
func (n Namespace) checked() (*network, error) {
	if _, ok := n.link(loopback); !ok {
		return nil, errors.New("it has no link lo: add Loopback()")
	}
	for i := range n.Links {
		if err := n.validateLink(&n.Links[i]); err != nil {
			return nil, err
		}
	}
	for i, plan := range n.Plans {
		if plan == nil {
			return nil, fmt.Errorf("plan %d is nil: leave it out", i)
		}
		if err := plan.Validate(); err != nil {
			return nil, fmt.Errorf("plan %d, of %s: %w", i, plan.Owner, err)
		}
	}
	if err := n.validateLiveSets(); err != nil {
		return nil, err
	}
	s, err := n.withPlans()
	if err != nil {
		return nil, err
	}
	for i := range n.Listeners {
		if err := s.validateListener(i); err != nil {
			return nil, fmt.Errorf("listener %q: %w", n.Listeners[i].Name, err)
		}
	}
	return s, nil
}

// validateLiveSets checks that members are given once, to live sets that exist, and of their
// family.
func (n *Namespace) validateLiveSets() error {
	for i, given := range n.LiveSets {
		double := slices.ContainsFunc(n.LiveSets[:i], func(o LiveSet) bool { return o.Owner == given.Owner && o.Name == given.Name })
		found := slices.ContainsFunc(n.Plans, func(plan *interception.Plan) bool {
			set, ok := plan.Set(given.Name)
			return ok && plan.Owner == given.Owner && set.Live && (given.Members.IsEmpty() || given.Members.Family() == set.Family)
		})
		if double || !found {
			return fmt.Errorf("live set %s of %s: no plan has it once, live, and of its members' family", given.Name, given.Owner)
		}
	}
	return nil
}

func (n *Namespace) validateLink(l *Link) error {
	if err := l.Name.Validate(); err != nil {
		return err
	}
	if first, _ := n.link(l.Name); first != l {
		return fmt.Errorf("two links are called %s: give each its own name", l.Name)
	}
	for i, address := range l.Addresses {
		switch {
		case !address.IsValid() || address.Addr().Is4In6():
			return fmt.Errorf("address %d of link %s (%s) is not one of IPv4 or IPv6 with a prefix length", i, l.Name, address)
		case address.Addr().IsUnspecified() || address.Addr().IsMulticast():
			return fmt.Errorf("address %s of link %s is not unicast", address, l.Name)
		}
	}
	return nil
}

// validateListener rejects what bind(2) would reject.
func (n *Namespace) validateListener(i int) error {
	l := n.Listeners[i]
	same := func(other Listener) bool {
		return other.Protocol == l.Protocol && other.Address == l.Address && other.Port == l.Port
	}
	switch {
	case l.Protocol != interception.ProtocolTCP && l.Protocol != interception.ProtocolUDP:
		return fmt.Errorf("it has protocol %s: use tcp or udp", l.Protocol)
	case l.Port == 0:
		return errors.New("it has port 0: name the port it is bound to")
	case l.Address.IsValid() && l.Address != wildcard(l.Address) && !n.isLocal(l.Address):
		return fmt.Errorf("no link has its address %s: add it to one, or bind to the zero Addr for all", l.Address)
	case slices.IndexFunc(n.Listeners, same) != i:
		return fmt.Errorf("another one is bound to the same address and port %d", l.Port)
	default:
		return nil
	}
}

// isBroadcast reports whether addr is IPv4's limited broadcast or that of a link's prefix.
func (n *Namespace) isBroadcast(addr netip.Addr) bool {
	if addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return true
	}
	for _, l := range n.Links {
		for _, prefix := range l.Addresses {
			if prefix.Addr().Is4() && prefix.Bits() < 31 && prefix.Contains(addr) && !prefix.Contains(addr.Next()) {
				return true
			}
		}
	}
	return false
}
