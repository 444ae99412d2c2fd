// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// Numbers are what the node's proxy and the rules must agree on, and what else a cluster may have
// to change because another program uses the same number. The zero value is invalid; start from
// [IstioNumbers].
type Numbers struct {
	// ProxyMark is on all sockets of the proxy. A reply of an accepted connection has the mark of
	// its listener, if the proxy lets connections inherit it.
	ProxyMark interception.MarkBits
	// ReplyMark marks connections that the proxy opens to the application with the address of its
	// client. By the mark the application's replies are delivered to the proxy, in the pod.
	ReplyMark interception.MarkBits
	// Table and Priority are those of the route and the policy rule that deliver these replies.
	Table    interception.RoutingTable
	Priority uint32
	// BranchPriority is the priority of the rules by which [HostPlan] reaches the pods of a [Branch].
	BranchPriority uint32
	// OutboundPort, InboundPort and DNSPort are those of the proxy's listeners for connections from
	// the pod, for connections to the pod, and for queries.
	OutboundPort, InboundPort, DNSPort interception.Port
	// TunnelPort is the port of the listener for connections from other proxies. Nothing redirects to
	// it: it is in the destination of these connections.
	TunnelPort interception.Port
	// Zone is the connection tracking zone of the proxy's own queries.
	Zone uint16
	// Probes are the source addresses of the node's own programs. Their connections to a pod pass
	// uncaptured, because the kubelet's probes come from there. The rules of the host ([HostPlan])
	// give the first address of each family to such connections. Where the network's datapath
	// bypasses these rules, as some eBPF datapaths do, add the node's own addresses.
	Probes []netip.Addr
}

// IstioNumbers returns the numbers of Istio's ztunnel and of its own node agent.
func IstioNumbers() Numbers {
	const mask = 0xfff // other programs use the higher bits
	return Numbers{
		ProxyMark:      interception.MarkBits{Value: 0x539, Mask: mask},
		ReplyMark:      interception.MarkBits{Value: 0x111, Mask: mask},
		Table:          100,
		Priority:       32764, // just before the main table
		BranchPriority: 512,
		OutboundPort:   15001,
		InboundPort:    15006,
		TunnelPort:     15008,
		DNSPort:        15053,
		Zone:           1,
		Probes: []netip.Addr{
			netip.MustParseAddr("169.254.7.127"),
			netip.MustParseAddr("fd16:9254:7127:1337:ffff:ffff:ffff:ffff"),
		},
	}
}

// ErrNumbers is wrapped by errors about [Numbers] that contradict each other.
var ErrNumbers = errors.New("invalid numbers")

// Validate returns an error that wraps [ErrNumbers] and names what is missing or contradictory.
func (n Numbers) Validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrNumbers, fmt.Sprintf(format, args...))
	}
	switch {
	case n.ProxyMark.Value == 0 || n.ReplyMark.Value == 0:
		return fail("a mark is 0, which is the mark of all other packets: choose other bits")
	case n.ReplyMark.Matches(n.ProxyMark.Value) || n.ProxyMark.Matches(n.ReplyMark.Value):
		return fail("a packet can have the proxy's mark %s and the replies' mark %s at once: choose other bits", n.ProxyMark, n.ReplyMark)
	case n.Table == 0 || n.Priority == 0 || n.BranchPriority == 0:
		return fail("routing table and priorities must be set")
	case n.Zone == 0:
		return fail("zone 0 is that of the pod's own queries: choose another")
	}
	return cmp.Or(n.validatePorts(fail), n.validateProbes(fail))
}

func (n Numbers) validatePorts(fail func(format string, args ...any) error) error {
	ports := map[interception.Port]string{}
	for _, p := range []struct {
		name string
		port interception.Port
	}{{"outbound", n.OutboundPort}, {"inbound", n.InboundPort}, {"tunnel", n.TunnelPort}, {"DNS", n.DNSPort}} {
		if other, taken := ports[p.port]; p.port == 0 || taken {
			return fail("the %s port %d is 0 or also the %s port: choose another", p.name, p.port, other)
		}
		ports[p.port] = p.name
	}
	return nil
}

func (n Numbers) validateProbes(fail func(format string, args ...any) error) error {
	for _, address := range n.Probes {
		if !address.IsValid() || address.Is4In6() || address.Zone() != "" || address.IsUnspecified() || address.IsLoopback() {
			return fail("probe address %s: give addresses that packets from the node can have", address)
		}
	}
	return nil
}

// probes returns the probe addresses of a family.
func (n Numbers) probes(family interception.Family) interception.PrefixSet {
	var of []netip.Prefix
	for _, address := range n.Probes {
		if interception.FamilyOf(address) == family {
			of = append(of, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	return interception.Prefixes(of...)
}
