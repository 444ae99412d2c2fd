// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Link is an object of a plan: a network interface that belongs to the plan. At most one of Geneve,
// VXLAN and Veth is set; without any of them the interface is a dummy, which drops what is sent.
//
// A dataplane changes the parameters of a link that the kernel can change: the MTU, the hardware
// address, and a tunnel's remote address within its family. For any other difference Apply returns
// an error before it writes anything. A plan that needs such a change names a new link: Apply makes
// it before it removes the old one.
type Link struct {
	// ID is unique in the plan.
	ID RuleID `json:"id"`
	// Name is the interface's name, unique in the plan.
	Name Interface `json:"name"`
	// Geneve makes the interface a GENEVE tunnel (RFC 8926).
	Geneve *Geneve `json:"geneve,omitempty"`
	// VXLAN makes the interface a VXLAN tunnel (RFC 7348).
	VXLAN *VXLAN `json:"vxlan,omitempty"`
	// Veth makes the interface one end of a pair whose other end is in another namespace (veth(4)).
	Veth *Veth `json:"veth,omitempty"`
	// MTU is the length in bytes of the largest packet that the interface sends; for Veth, of both
	// ends. 0 leaves it to the kernel, and Diff does not compare it. [Link.MTUOver] computes that of
	// a tunnel.
	MTU int `json:"mtu,omitempty"`
	// HardwareAddr is the interface's Ethernet address as ip(8) writes it, such as
	// "02:00:00:00:00:01". The zero value leaves it to the kernel, and Diff does not compare it.
	HardwareAddr string `json:"hardwareAddr,omitempty"`
	// Why is the constant reason for the interface.
	Why string `json:"why"`
	// From is the interface's provenance.
	From []Source `json:"from,omitempty"`
}

// Geneve is the remote end of a GENEVE tunnel.
type Geneve struct {
	// VNI is the virtual network identifier, 24 bits.
	VNI uint32 `json:"vni"`
	// Remote is the remote end's address.
	Remote netip.Addr `json:"remote"`
	// Port is the remote end's UDP port. It must be set.
	Port Port `json:"port"`
}

// VXLAN is the remote end of a VXLAN tunnel. The tunnel does not learn addresses from packets: all
// that it sends goes to the remote end.
type VXLAN struct {
	// VNI is the virtual network identifier, 24 bits.
	VNI uint32 `json:"vni"`
	// Remote is the remote end's unicast address.
	Remote netip.Addr `json:"remote"`
	// Port is the UDP port of both ends. It must be set.
	Port Port `json:"port"`
}

// Veth is the other end of a pair of interfaces. It is up as long as the pair exists, and goes with
// the link. Its addresses and routes belong to a plan for its own namespace.
type Veth struct {
	// Peer is the name of the other end.
	Peer Interface `json:"peer"`
	// Namespace is the label of the network namespace of the other end, such as "proxy": at most 28
	// of a-z, 0-9 and '-', a letter first. [Netns.With] gives a namespace a label.
	Namespace string `json:"namespace"`
}

// tunnelHeaders is the length in bytes of what a tunnel puts before a packet, less the outer IP
// header: UDP (8), VXLAN or GENEVE without options (8), and the inner Ethernet header (14).
const tunnelHeaders = 8 + 8 + 14

// MTUOver returns the largest MTU of the link with which a tunnel's packets fit, with their outer
// headers, into the underlying MTU: that of the interface by which they leave. For a link that is
// no tunnel it returns the underlying MTU.
func (l Link) MTUOver(underlying int) int {
	remote := l.remote()
	switch {
	case !remote.IsValid():
		return underlying
	case remote.Is4():
		return underlying - tunnelHeaders - 20
	default:
		return underlying - tunnelHeaders - 40
	}
}

// remote returns the remote end of a tunnel, or the zero Addr.
func (l Link) remote() netip.Addr {
	switch {
	case l.Geneve != nil:
		return l.Geneve.Remote
	case l.VXLAN != nil:
		return l.VXLAN.Remote
	default:
		return netip.Addr{}
	}
}

func (l Link) text() string {
	words := fmt.Sprintf("link %s %s", l.Name, l.kind())
	if l.MTU != 0 {
		words += fmt.Sprintf(" mtu %d", l.MTU)
	}
	if l.HardwareAddr != "" {
		words += " hardware address " + l.HardwareAddr
	}
	return words
}

// kind returns the kind of the interface with its parameters.
func (l Link) kind() string {
	tunnel := func(kind string, vni uint32, port Port) string {
		return fmt.Sprintf("%s vni %d remote %s", kind, vni, netip.AddrPortFrom(l.remote(), uint16(port)))
	}
	switch {
	case l.Geneve != nil:
		return tunnel("geneve", l.Geneve.VNI, l.Geneve.Port)
	case l.VXLAN != nil:
		return tunnel("vxlan", l.VXLAN.VNI, l.VXLAN.Port)
	case l.Veth == nil:
		return "dummy"
	case l.Veth.Peer == "": // observed, and the other end is not known
		return "veth"
	default:
		return fmt.Sprintf("veth peer %s in %s", l.Veth.Peer, l.Veth.Namespace)
	}
}

// asked returns an observed link without the parameters that the plan leaves to the kernel.
func (l Link) asked(by Link) Link {
	if by.MTU == 0 {
		l.MTU = 0
	}
	if by.HardwareAddr == "" {
		l.HardwareAddr = ""
	}
	return l
}

// The bounds of MTUs: the kernel's smallest one for Ethernet (ETH_MIN_MTU) and the longest IPv4
// packet.
const (
	minMTU = 68
	maxMTU = 65535
)

func linkError(l Link) error {
	errs := []error{l.Name.Validate(), linkKindError(l)}
	if l.MTU != 0 && (l.MTU < minMTU || l.MTU > maxMTU) {
		errs = append(errs, fmt.Errorf("MTU %d is not between %d and %d", l.MTU, minMTU, maxMTU))
	}
	return errors.Join(append(errs, hardwareAddrError(l.HardwareAddr))...)
}

func hardwareAddrError(text string) error {
	if text == "" {
		return nil
	}
	parts := strings.Split(text, ":")
	isByte := func(part string) bool { return len(part) == 2 && strings.Trim(part, digits+"abcdef") == "" }
	if len(parts) != 6 || slices.ContainsFunc(parts, func(part string) bool { return !isByte(part) }) {
		return fmt.Errorf("hardware address %s is not one of Ethernet such as 02:00:00:00:00:01", quoteBriefly(text))
	}
	if strings.Contains("13579bdf", parts[0][1:]) {
		return fmt.Errorf("hardware address %s is one of a group: no interface can have it", text)
	}
	return nil
}

func linkKindError(l Link) error {
	kinds := 0
	for _, is := range []bool{l.Geneve != nil, l.VXLAN != nil, l.Veth != nil} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return errors.New("a link is of one kind: set one of Geneve, VXLAN and Veth, or none for a dummy")
	case l.Geneve != nil:
		return tunnelError(l.Geneve.VNI, l.Geneve.Remote, l.Geneve.Port)
	case l.VXLAN != nil:
		return tunnelError(l.VXLAN.VNI, l.VXLAN.Remote, l.VXLAN.Port)
	case l.Veth != nil:
		return errors.Join(l.Veth.Peer.Validate(), validateLabel(l.Veth.Namespace))
	}
	return nil
}

func tunnelError(vni uint32, remote netip.Addr, port Port) error {
	switch {
	case vni >= 1<<24:
		return fmt.Errorf("VNI %d has more than 24 bits", vni)
	case port == 0 || !remote.IsValid():
		return errors.New("a tunnel needs the far end's address and port")
	case remote.IsMulticast() || remote.IsUnspecified():
		return fmt.Errorf("the far end %s is no unicast address: a tunnel has one far end", remote)
	default:
		return plainAddrError("the far end", remote)
	}
}
