// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// SidecarOptions say what a pod with a sidecar looks like. The zero value is a pod with both families and no application.
type SidecarOptions struct {
	// Addresses are the addresses of eth0 with their prefix lengths, in the order of ip-address(8): 10.244.0.2/24 and
	// fd00:10:244::2/64 when nil.
	Addresses []netip.Prefix
	// Loopback are addresses of lo beside 127.0.0.1/8 and ::1/128.
	Loopback []netip.Prefix
	// Listeners are the sockets of the pod. For each port that the plan redirects to, a listener of the proxy on all addresses,
	// named "proxy-15001" with the port's number, is added unless there is one on that port; a Transparent one where the plan hands
	// over packets as they are.
	Listeners []Listener
}

// Sidecar derives the world of a plan that captures a pod for the proxy in it: one namespace called "pod" with the links lo and eth0,
// the plan, and the listeners of application and proxy. Without a plan (nil) it is a pod outside the mesh. The world is the
// caller's to change: other owners' plans go beside this one, into Namespaces[0].Plans. Addresses of the plan's own are there by
// the plan.
func Sidecar(plan *interception.Plan, o SidecarOptions) World {
	addresses := o.Addresses
	if addresses == nil {
		addresses = []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 0, 2}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 4: 0x02, 5: 0x44, 15: 2}), 64),
		}
	}
	pod := Namespace{
		Name:      "pod",
		Links:     []Link{Loopback(o.Loopback...), {Name: "eth0", Addresses: addresses}},
		Listeners: slices.Clone(o.Listeners),
	}
	if plan != nil {
		pod.Plans = []*interception.Plan{plan}
		pod.addProxy(plan)
	}
	return World{Namespaces: []Namespace{pod}}
}

// addProxy adds the listeners that the plan sends connections to and that are not there.
func (n *Namespace) addProxy(plan *interception.Plan) {
	given := len(n.Listeners)
	for _, rule := range plan.Rules() {
		port, transparent := interception.Port(0), false
		switch action := rule.Action.(type) {
		case interception.RedirectTo:
			port = action.Port
		case interception.TProxyTo:
			port, transparent = action.Port, true
		default:
			continue
		}
		protocol := rule.Match.L4.Protocol()
		at := slices.IndexFunc(n.Listeners, func(l Listener) bool { return l.Protocol == protocol && l.Port == port })
		if at < 0 {
			at = len(n.Listeners)
			n.Listeners = append(n.Listeners, Listener{Name: fmt.Sprintf("proxy-%d", port), Proxy: true, Protocol: protocol, Port: port})
		}
		if at >= given && transparent {
			n.Listeners[at].Transparent = true
		}
	}
}
