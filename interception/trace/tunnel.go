// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// Tunnel is a link that sends a packet within another one: the origin of the outer packet, in a
// [Journey]. [Trace] and [Follow] take no packet from it.
type Tunnel struct {
	// Namespace is the namespace's name.
	Namespace string
	// Link is the link's name.
	Link interception.Interface
	// Mark is the mark of the inner packet, which the kernel leaves on the outer one.
	Mark interception.Mark
}

func (Tunnel) origin() {}

// String returns "tunnel istioin" with the link's name, followed by "mark 0x100" unless it is 0.
func (t Tunnel) String() string { return "tunnel " + string(t.Link) + markText(t.Mark) }

// markText returns " mark 0x539", or nothing for 0.
func markText(m interception.Mark) string {
	if m == 0 {
		return ""
	}
	return fmt.Sprintf(" mark 0x%x", uint32(m))
}

// tunnel is how a link packs packets; its port is 0 if the link is no tunnel.
type tunnel struct {
	geneve bool
	vni    uint32
	remote netip.Addr
	port   interception.Port
}

func (l *Link) tunnel() tunnel {
	switch {
	case l.VXLAN != nil:
		return tunnel{vni: l.VXLAN.VNI, remote: l.VXLAN.Remote, port: l.VXLAN.Port}
	case l.Geneve != nil:
		return tunnel{geneve: true, vni: l.Geneve.VNI, remote: l.Geneve.Remote, port: l.Geneve.Port}
	default:
		return tunnel{}
	}
}

// unpacks returns the link that takes the inner packet out of an outer one: a tunnel of the same
// kind, network identifier, port and outer family. GENEVE takes only what comes from its own far
// end (drivers/net/geneve.c, geneve_lookup), VXLAN without learning takes all
// (drivers/net/vxlan/vxlan_core.c, vxlan_rcv).
func (n *network) unpacks(by tunnel, outer Header) (interception.Interface, bool) {
	for i := range n.Links {
		own := n.Links[i].tunnel()
		fits := own.port != 0 && uint16(own.port) == outer.Dst.Port() && own.geneve == by.geneve && own.vni == by.vni &&
			own.remote.Is4() == outer.Dst.Addr().Is4()
		if fits && (!own.geneve || own.remote == outer.Src.Addr()) {
			return n.Links[i].Name, true
		}
	}
	return "", false
}
