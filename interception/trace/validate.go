// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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
	wires, peers := w.wires()
	networks := make([]*network, len(w.Namespaces))
	for i, n := range w.Namespaces {
		if slices.IndexFunc(w.Namespaces, func(o Namespace) bool { return o.Name == n.Name }) != i {
			return nil, fmt.Errorf("%w: two namespaces are called %q: give each its own name", ErrWorld, n.Name)
		}
		var err error
		if networks[i], err = n.checked(peers[n.Name]); err != nil {
			return nil, fmt.Errorf("%w: namespace %q: %w", ErrWorld, n.Name, err)
		}
	}
	if err := validateWires(wires, networks); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWorld, err)
	}
	return networks, nil
}

// checked returns the namespace with its plans, if it could exist.
func (n Namespace) checked(peers []Link) (*network, error) {
	if _, ok := n.link(loopback); !ok {
		return nil, errors.New("it has no link lo: add Loopback()")
	}
	for i := range n.Links {
		if err := n.validateLink(&n.Links[i]); err != nil {
			return nil, err
		}
	}
	if err := n.validateRoutes(); err != nil {
		return nil, err
	}
	for i, plan := range n.Plans {
		if plan == nil {
			return nil, fmt.Errorf("plan %d is nil (%w): leave it out", i, plan.Validate())
		}
		if err := plan.Validate(); err != nil {
			return nil, fmt.Errorf("plan %d, of %s: %w", i, plan.Owner, err)
		}
	}
	if err := cmp.Or(n.validateLiveSets(), n.validateSysctls()); err != nil {
		return nil, err
	}
	s, err := n.withPlans(peers)
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
		if err := n.validateLiveSet(given, n.LiveSets[:i]); err != nil {
			return fmt.Errorf("live set %q of %q: %w", given.Name, given.Owner, err)
		}
	}
	return nil
}

func (n *Namespace) validateLiveSet(given LiveSet, before []LiveSet) error {
	if slices.ContainsFunc(before, func(o LiveSet) bool { return o.Owner == given.Owner && o.Name == given.Name }) {
		return errors.New("its members are given twice: join them")
	}
	err := errors.New("the namespace has no plan of that owner")
	for _, plan := range n.Plans {
		if plan.Owner != given.Owner {
			continue
		}
		set, found := plan.Set(given.Name)
		switch {
		case !found:
			err = errors.New("its owner's plan has no such set")
		case !set.Live:
			err = errors.New("it is fixed, and its members are the plan's: leave it out")
		case !given.Members.IsEmpty() && given.Members.Family() != set.Family:
			err = fmt.Errorf("its members must be of %s: %s", set.Family, given.Members)
		default:
			return nil
		}
	}
	return err
}

// validateRoutes checks the routes of the namespace's own as those of a plan.
func (n *Namespace) validateRoutes() error {
	for _, r := range n.Routes {
		r.ID, r.Why = "route", "a route"
		if err := (&interception.Plan{Owner: "other-program", Objects: []interception.Object{r}}).Validate(); err != nil {
			return fmt.Errorf("route to %s: %w", r.Destination, err)
		}
	}
	return nil
}

// validateSysctls refuses settings that no packet's walk depends on.
func (n *Namespace) validateSysctls() error {
	for key := range n.Sysctls {
		link, ofLink := strings.CutPrefix(key, "ipv4/conf/")
		_, setting, _ := strings.Cut(link, "/")
		known := []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/tcp_fwmark_accept"}
		ofLinks := []string{"rp_filter", "src_valid_mark", "accept_local", "route_localnet"}
		if !slices.Contains(known, key) && (!ofLink || !slices.Contains(ofLinks, setting)) {
			return fmt.Errorf("sysctl %s: no packet's way depends on it, or this is not known: leave it out", key)
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
	if err := l.validateTunnel(); err != nil {
		return fmt.Errorf("link %s: %w", l.Name, err)
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

func (l *Link) validateTunnel() error {
	by := l.tunnel()
	switch {
	case l.VXLAN != nil && l.Geneve != nil:
		return errors.New("it is VXLAN and GENEVE: it is one tunnel")
	case (l.VXLAN != nil || l.Geneve != nil) && (by.port == 0 || !by.remote.IsValid()):
		return errors.New("a tunnel needs the far end's address and port")
	default:
		return nil
	}
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
