// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Way is the kind of the wires between the node's namespace and the proxy's.
type Way uint8

// The ways.
const (
	// WayVeth is a pair of virtual Ethernet interfaces for each wire. It needs the proxy's
	// namespace to be open, and nothing between both namespaces.
	WayVeth Way = iota
	// WayVXLAN is a VXLAN tunnel for each wire, between the node's address and the proxy's. It
	// costs the packets' encapsulation and 50 bytes of their length, 70 over IPv6.
	WayVXLAN
)

// String returns "veth" or "vxlan".
func (w Way) String() string {
	return cmp.Or(map[Way]string{WayVeth: "veth", WayVXLAN: "vxlan"}[w], fmt.Sprintf("way %d", uint8(w)))
}

// NodeProxy is the proxy of a node, in a pod of its own, as [NodePlan] and [ProxyPlan] must know
// it. The zero value is a node without a proxy.
type NodeProxy struct {
	// Addresses are the pod addresses of the proxy, at most one of each family. The proxy serves the
	// families that it has an address of.
	Addresses []netip.Addr
	// Way is the kind of the wires.
	Way Way
	// Namespace is the label of the proxy's namespace ([interception.Netns.With]), for WayVeth.
	Namespace string
	// Node is the node's address that reaches the proxy, for WayVXLAN. The proxy must have an
	// address of its family.
	Node netip.Addr
	// MTU is the MTU of the pods' network in bytes; 0 stands for 1500. Wires of WayVXLAN have this
	// MTU less the length of the tunnel's headers.
	MTU int
	// Generation tells the wires of one proxy from those of another: unless it is 0, it is appended
	// to the interfaces' names. Of two proxies at once, one has an even generation and the other an
	// odd one, by which their connections are told.
	Generation uint8
	// DNS sends queries of meshed pods over UDP to the proxy. Those over TCP go there in any case,
	// as every connection does.
	DNS bool
}

// ErrNodeProxy is wrapped by errors about a [NodeProxy] that cannot be.
var ErrNodeProxy = errors.New("invalid proxy of the node")

// IsZero reports whether there is no proxy.
func (p NodeProxy) IsZero() bool { return len(p.Addresses) == 0 }

// Validate returns an error that wraps [ErrNodeProxy] and names what is missing or contradictory.
// The zero value is valid.
func (p NodeProxy) Validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrNodeProxy, fmt.Sprintf(format, args...))
	}
	for i, address := range p.Addresses {
		switch {
		case !usable(address):
			return fail("address %s: give the plain addresses of its pod", address)
		case address == p.Node:
			return fail("address %s is also the node's: the proxy needs a network namespace of its own", address)
		case slices.ContainsFunc(p.Addresses[:i], func(o netip.Addr) bool { return o.Is4() == address.Is4() }):
			return fail("%v has two addresses of a family: choose one of each", p.Addresses)
		}
	}
	if p.IsZero() {
		return nil
	}
	return p.validateWay(fail)
}

func (p NodeProxy) validateWay(fail func(format string, args ...any) error) error {
	switch {
	case p.MTU != 0 && p.MTU < minMTU:
		return fail("MTU %d is less than %d, which IPv6 needs", p.MTU, minMTU)
	case p.Way == WayVeth && p.Namespace == "":
		return fail("its namespace has no label")
	case p.Way == WayVeth: // Build validates the label
	case p.Way != WayVXLAN:
		return fail("%s is unknown: choose veth or vxlan", p.Way)
	case !usable(p.Node) || !p.serves(interception.FamilyOf(p.Node)):
		return fail("the node's address %s is none of a family of %v: a tunnel needs both ends", p.Node, p.Addresses)
	}
	return nil
}

// validateOthers refuses further proxies that are no proxies, or whose connections could not be
// told from those of another one.
func validateOthers(p NodeProxy, others []NodeProxy) error {
	taken := map[bool]bool{isOdd(p.Generation): true}
	for _, o := range others {
		if err := o.Validate(); err != nil {
			return err
		}
		if o.IsZero() || taken[isOdd(o.Generation)] {
			return fmt.Errorf("%w: a proxy of generation %d beside one of generation %d: each needs addresses, and one of two an odd generation",
				ErrNodeProxy, o.Generation, p.Generation)
		}
		taken[isOdd(o.Generation)] = true
	}
	return nil
}

// minMTU is IPv6's (RFC 8200, section 5), with room for a tunnel's headers.
const minMTU = 1280 + 70

// defaultMTU is the MTU of Ethernet.
const defaultMTU = 1500

// usable reports whether a single program can have the address on a network.
func usable(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast()
}

// address returns the proxy's address of a family; the zero Addr without one.
func (p NodeProxy) address(family interception.Family) netip.Addr {
	i := slices.IndexFunc(p.Addresses, func(a netip.Addr) bool { return interception.FamilyOf(a) == family })
	if i < 0 {
		return netip.Addr{}
	}
	return p.Addresses[i]
}

func (p NodeProxy) serves(family interception.Family) bool { return p.address(family).IsValid() }

// families returns the families of the facts that the proxy serves.
func (p NodeProxy) families(f interception.Facts) []interception.Family {
	return slices.DeleteFunc(families(f), func(family interception.Family) bool { return !p.serves(family) })
}

// tunnel returns the link of one end of a wire as a VXLAN tunnel.
func (p NodeProxy) tunnel(
	id interception.RuleID, name interception.Interface, w Wire, remote netip.Addr, port interception.Port,
) interception.Link {
	link := interception.Link{
		ID: id, Name: name, VXLAN: &interception.VXLAN{VNI: w.VNI, Remote: remote, Port: port}, Why: whyWire,
	}
	link.MTU = link.MTUOver(cmp.Or(p.MTU, defaultMTU))
	return link
}

// whyWire is the reason for the interfaces of wires.
const whyWire = "leads between the node and its proxy"
