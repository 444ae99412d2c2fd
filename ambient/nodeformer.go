// SPDX-License-Identifier: Apache-2.0

package ambient

import "github.com/meshcni/meshcni/interception"

// FormerCapture is another program's capture that stands on the node beside [NodePlan] until the
// connections that it has captured have ended. The zero value is none.
type FormerCapture struct {
	// Skipped is the mark of packets that the other program leaves alone. What the proxies send by
	// their wires gets it.
	Skipped interception.MarkBits
	// ProxyLink is the node's interface to the other program's proxy. Connections that this proxy
	// opens are not captured.
	ProxyLink interception.Interface
	// InPods reports that a proxy may also serve pods in their own namespaces ([PodPlan]), as while a
	// node changes its form of capture. Where both capture a connection, it goes through both proxies
	// in clear text. A tunnel between proxies must not: what meshed pods send to
	// NodeNumbers.TunnelPort is left alone, as it is the proxy in the pod that sends it, and so is
	// what comes to that port of the pods in [FormerCapture.SharedSet].
	InPods bool
}

// SharedSet returns the name of the live set that holds the addresses of the pods, of one family,
// that are also captured in their own namespaces, in [NodePlan] with FormerCapture.InPods. The
// owner of a member is the pod's UID.
func (FormerCapture) SharedSet(family interception.Family) interception.SetName {
	return interception.SetName("shared-" + family.String())
}

// fromProxy returns the condition on what the other program's proxy sends.
func (f FormerCapture) fromProxy() interception.Match {
	return interception.Match{In: interception.Is(interception.Interfaces(f.ProxyLink))}
}

// tunnels matches what opens a connection to the tunnels' port of a proxy.
func (n NodeNumbers) tunnels() interception.L4 {
	return opening().To(interception.Ports(n.TunnelPort))
}

const whyTunnels = "tunnels of a proxy in a pod are not captured again"

const whyFormer = "what the proxy of another program sends is not captured again"

// BesideIstioNodeNumbers returns numbers for capture beside Istio 1.18 to 1.20: they have the ports
// of the proxy's listeners in common with [IstioNodeNumbers], and nothing else. The
// priorities precede those of Istio, so that both can capture new connections and these numbers
// decide.
func BesideIstioNodeNumbers() NodeNumbers {
	bits := func(value interception.Mark) interception.MarkBits {
		return interception.MarkBits{Value: value, Mask: value}
	}
	const proxyMask = 0x3000
	n := IstioNodeNumbers()
	n.Outbound = MarkedRoute{Mark: bits(0x1), Table: 111, OddTable: 114, Priority: 91}
	n.Replies = MarkedRoute{Mark: bits(0x1000), Table: 112, OddTable: 115, Priority: 92}
	n.Inbound = MarkedRoute{Mark: bits(0x2), Table: 110, OddTable: 113, Priority: 93}
	// Other bits are other programs': of AWS's plugin 0x80, of Cilium 0xf00, of Azure's network
	// policies 0xe00, of the CNI plugin portmap 0x2000, of Kubernetes 0xc000, of Calico 0xffff0000.
	n.Opened, n.Odd, n.DirectPriority = bits(0x1000), bits(0x0008), 90
	n.Delivered = MarkedRoute{Mark: interception.MarkBits{Value: 0x1000, Mask: proxyMask}, Table: 110, Priority: 20010}
	n.Transparent = MarkedRoute{Mark: interception.MarkBits{Value: 0x2000, Mask: proxyMask}, Table: 111, Priority: 20011}
	// Addresses of pods may be private ones, such as those of Calico's 192.168.0.0/16, and none is
	// link-local (RFC 3927).
	n.InboundWire = Wire{
		Node: "meshin", Proxy: "pmeshin", VNI: 1002,
		NodeAddresses:  prefixes("169.254.227.1/30", "fd16:9254:7127:124::1/126"),
		ProxyAddresses: prefixes("169.254.227.2/30", "fd16:9254:7127:124::2/126"),
	}
	n.OutboundWire = Wire{
		Node: "meshout", Proxy: "pmeshout", VNI: 1003,
		NodeAddresses:  prefixes("169.254.227.5/30", "fd16:9254:7127:125::1/126"),
		ProxyAddresses: prefixes("169.254.227.6/30", "fd16:9254:7127:125::2/126"),
	}
	n.UDPPort = 14789
	return n
}
