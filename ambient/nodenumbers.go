// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// MarkedRoute sends the packets that carry a mark by a routing table of their own.
type MarkedRoute struct {
	// Mark is the mark of the packets.
	Mark interception.MarkBits
	// Table is the number of the routing table. In the node's namespace, OddTable is that for a proxy
	// of an odd generation.
	Table, OddTable interception.RoutingTable
	// Priority is the priority of the policy rule that selects the table for the mark.
	Priority uint32
}

// Wire is a pair of interfaces: one in the node's namespace, the other in the proxy's.
type Wire struct {
	// Node and Proxy are the interfaces' names in the two namespaces. No other interface's name may
	// begin with them: rules mean all that do, for the sake of NodeProxy.Generation.
	Node, Proxy interception.Interface
	// NodeAddresses and ProxyAddresses are the addresses of both ends with the length of their
	// common subnet, one of each family.
	NodeAddresses, ProxyAddresses []netip.Prefix
	// VNI is the wire's network identifier, where it is a VXLAN tunnel: 16 bits, above which the
	// generation follows.
	VNI uint32
}

// NodeNumbers are the marks, routing numbers, interfaces and ports of capture on the node, which
// [NodePlan] and [ProxyPlan] must agree on. The zero value is invalid; start from
// [IstioNodeNumbers].
type NodeNumbers struct {
	// Outbound, Inbound and Replies are in the node's namespace: for packets of connections that
	// meshed pods open, of those that are opened to them, and for what answers the connections that
	// the proxy opens in the name of others. The marks of Outbound and Inbound are also those of
	// the connections.
	Outbound, Inbound, Replies MarkedRoute
	// Opened is the mark of the connections that the proxy opens in the name of others.
	Opened interception.MarkBits
	// Zone is the connection tracking zone in which these connections begin ([interception.SetZone],
	// DirectionOriginal). It keeps them apart from their clients' connections, which can have the
	// same addresses and ports. The connections of a proxy of an odd generation begin in Zone+1.
	Zone uint16
	// Odd is added to the marks above where the proxy is of an odd generation: while two proxies have
	// wires, each keeps its own connections.
	Odd interception.MarkBits
	// Delivered and Transparent are in the proxy's namespace: for packets to the proxy's
	// transparent sockets, whatever their destination, and for what these sockets send with
	// addresses of others.
	Delivered, Transparent MarkedRoute
	// DirectPriority is the priority, in both namespaces, of the rule by which the packets of a
	// VXLAN tunnel itself use the main table. It must precede those of the marks, which they carry
	// too.
	DirectPriority uint32
	// InboundWire takes connections to meshed pods to the proxy. OutboundWire takes their own, and
	// all that the proxy sends with addresses of others.
	InboundWire, OutboundWire Wire
	// UDPPort is the port of both ends of VXLAN tunnels.
	UDPPort interception.Port
	// OutboundPort, InboundPort, TunnelPort and DNSPort are those of the proxy's listeners for
	// connections from meshed pods, for connections to them, for connections of other proxies to
	// them, and for queries.
	OutboundPort, InboundPort, TunnelPort, DNSPort interception.Port
	// Former is another program's capture that stands on the node, too; none in the zero value.
	Former FormerCapture
}

// IstioNodeNumbers returns the numbers that Istio 1.18 to 1.20 used, as far as they had any: the
// mark of inbound connections, the zone, what odd generations have, and the addresses of IPv6 are
// our own.
func IstioNodeNumbers() NodeNumbers {
	bits := func(value interception.Mark) interception.MarkBits {
		return interception.MarkBits{Value: value, Mask: value}
	}
	const proxyMask = 0xfff
	return NodeNumbers{
		Outbound:       MarkedRoute{Mark: bits(0x100), Table: 101, OddTable: 104, Priority: 101},
		Replies:        MarkedRoute{Mark: bits(0x040), Table: 102, OddTable: 105, Priority: 102},
		Inbound:        MarkedRoute{Mark: bits(0x800), Table: 100, OddTable: 103, Priority: 103},
		Opened:         bits(0x210),
		Zone:           0x210,
		Odd:            bits(0x020),
		Delivered:      MarkedRoute{Mark: interception.MarkBits{Value: 0x400, Mask: proxyMask}, Table: 100, Priority: 20000},
		Transparent:    MarkedRoute{Mark: interception.MarkBits{Value: 0x210, Mask: proxyMask}, Table: 101, Priority: 20001},
		DirectPriority: 100,
		InboundWire: Wire{
			Node: "istioin", Proxy: "pistioin", VNI: 1000,
			NodeAddresses:  prefixes("192.168.126.1/30", "fd16:9254:7127:126::1/126"),
			ProxyAddresses: prefixes("192.168.126.2/30", "fd16:9254:7127:126::2/126"),
		},
		OutboundWire: Wire{
			Node: "istioout", Proxy: "pistioout", VNI: 1001,
			NodeAddresses:  prefixes("192.168.127.1/30", "fd16:9254:7127:127::1/126"),
			ProxyAddresses: prefixes("192.168.127.2/30", "fd16:9254:7127:127::2/126"),
		},
		UDPPort:      6081,
		OutboundPort: 15001,
		InboundPort:  15006,
		TunnelPort:   15008,
		DNSPort:      15053,
	}
}

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

// Validate returns an error that wraps [ErrNumbers] and names what is missing or contradictory.
func (n NodeNumbers) Validate() error {
	return cmp.Or(n.validateMarks(), n.validateRouting(), n.validateWires(), n.validatePorts())
}

// defaultTable is the first of the kernel's own routing tables (ip-route(8)).
const defaultTable interception.RoutingTable = 253

func numbersError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNumbers, fmt.Sprintf(format, args...))
}

func (n NodeNumbers) validateMarks() error {
	for _, of := range [][]interception.MarkBits{
		{n.Outbound.Mark, n.Inbound.Mark, n.Replies.Mark, n.Odd}, // of packets
		{n.Outbound.Mark, n.Inbound.Mark, n.Opened, n.Odd},       // of connections
	} {
		var taken interception.Mark
		for _, mark := range of {
			if mark.Value == 0 || mark.Mask&taken != 0 {
				return numbersError("the mark %s is 0 or shares a bit with another one of the node's: choose other bits", mark)
			}
			taken |= mark.Mask
		}
		if skipped := n.Former.Skipped; skipped.Mask&taken != 0 {
			return numbersError("another program captures with the mark %s, which shares a bit with one of the node's: choose other bits", skipped)
		}
	}
	if n.Zone == 0 || n.Zone == math.MaxUint16 {
		return numbersError("connections of the proxies begin in zone %d: choose one from 1 to 65534, as odd generations use the next", n.Zone)
	}
	delivered, transparent := n.Delivered.Mark, n.Transparent.Mark
	if delivered.Value == 0 || transparent.Value == 0 || (delivered.Value^transparent.Value)&delivered.Mask&transparent.Mask == 0 {
		return numbersError("a packet in the proxy's namespace can have the marks %s and %s at once, or none: choose other bits",
			delivered, transparent)
	}
	return nil
}

func (n NodeNumbers) validateRouting() error {
	node, proxy := []MarkedRoute{n.Outbound, n.Inbound, n.Replies}, []MarkedRoute{n.Delivered, n.Transparent}
	for _, of := range [][]MarkedRoute{node, proxy} {
		priorities := map[uint32]bool{}
		for _, route := range of {
			if route.Priority <= n.DirectPriority || priorities[route.Priority] {
				return numbersError("priority %d has two uses in a namespace, or does not follow %d: choose another", route.Priority, n.DirectPriority)
			}
			priorities[route.Priority] = true
		}
	}
	for _, of := range [][]interception.RoutingTable{
		{n.Outbound.Table, n.Outbound.OddTable, n.Inbound.Table, n.Inbound.OddTable, n.Replies.Table, n.Replies.OddTable},
		{n.Delivered.Table, n.Transparent.Table},
	} {
		tables := map[interception.RoutingTable]bool{}
		for _, table := range of {
			if table == 0 || tables[table] || table >= defaultTable && table <= localTable {
				return numbersError("routing table %d is one of the kernel's own or has two uses in a namespace: choose another", table)
			}
			tables[table] = true
		}
	}
	if n.DirectPriority == 0 {
		return numbersError("the priority of a tunnel's own packets must be set")
	}
	return nil
}

func (n NodeNumbers) validateWires() error {
	in, out := n.InboundWire, n.OutboundWire
	if (in.VNI|out.VNI)>>generationBits != 0 {
		return numbersError("the VNIs %d and %d must have no more than %d bits: the others are the generation's", in.VNI, out.VNI, generationBits)
	}
	if begins(in.Node, out.Node) || begins(in.Proxy, out.Proxy) || in.VNI == out.VNI {
		return numbersError("the wires %s (VNI %d) and %s (VNI %d) have a name, the beginning of a name or the VNI in common: choose others",
			in.Node, in.VNI, out.Node, out.VNI)
	}
	var taken []netip.Prefix
	for _, wire := range []Wire{in, out} {
		for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
			node, proxy := ofFamily(wire.NodeAddresses, family), ofFamily(wire.ProxyAddresses, family)
			if len(node) != 1 || len(proxy) != 1 {
				return numbersError("the ends of wire %s have %v and %v: give one address of each family to each",
					wire.Node, wire.NodeAddresses, wire.ProxyAddresses)
			}
			if node[0] == proxy[0] || node[0].Masked() != proxy[0].Masked() || slices.ContainsFunc(taken, node[0].Overlaps) {
				return numbersError("the addresses %s and %s of wire %s are no pair with a subnet of its own", node[0], proxy[0], wire.Node)
			}
			taken = append(taken, node[0])
		}
	}
	return nil
}

// generationBits is the number of bits of VNIs that are the same in all generations.
const generationBits = 16

// begins reports whether one of two names is the other or begins it: rules select the wires of all
// generations by the beginning.
func begins(a, b interception.Interface) bool {
	return strings.HasPrefix(string(a), string(b)) || strings.HasPrefix(string(b), string(a))
}

func (n NodeNumbers) validatePorts() error {
	listeners := Numbers{OutboundPort: n.OutboundPort, InboundPort: n.InboundPort, DNSPort: n.DNSPort, TunnelPort: n.TunnelPort}
	if n.UDPPort == 0 {
		return numbersError("the UDP port of tunnels must be set")
	}
	return listeners.validatePorts(numbersError)
}

// Generation returns the numbers with the wires, the marks and the tables that the plans for a
// proxy of a generation ([NodeProxy]) have.
func (n NodeNumbers) Generation(number uint8) NodeNumbers {
	odd := isOdd(number)
	if odd {
		n.Zone++
	}
	for _, mark := range []*interception.MarkBits{&n.Outbound.Mark, &n.Inbound.Mark, &n.Replies.Mark, &n.Opened} {
		mark.Mask |= n.Odd.Mask
		if odd {
			mark.Value |= n.Odd.Value
		}
	}
	for _, route := range []*MarkedRoute{&n.Outbound, &n.Inbound, &n.Replies} {
		if odd {
			route.Table = route.OddTable
		}
	}
	for _, wire := range []*Wire{&n.InboundWire, &n.OutboundWire} {
		if number != 0 {
			wire.Node += interception.Interface(fmt.Sprint(number))
			wire.Proxy += interception.Interface(fmt.Sprint(number))
			wire.VNI |= uint32(number) << generationBits
		}
	}
	return n
}

func isOdd(generation uint8) bool { return generation%2 == 1 }

// ofFamily returns the prefixes of a family.
func ofFamily(all []netip.Prefix, family interception.Family) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return interception.FamilyOf(p.Addr()) != family })
}
