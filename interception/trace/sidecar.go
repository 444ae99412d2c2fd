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
	// named "proxy-15001" with the port's number, is added unless there is one on that port.
	Listeners []Listener
}

// Sidecar derives the world of a plan that [interception.PlanSidecar] made: one namespace called "pod" with the links lo and eth0,
// the plan, and the listeners of application and proxy. Without a plan (nil) it is a pod outside the mesh. The world is the
// caller's to change: other owners' plans go beside this one, into Namespaces[0].Plans.
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

// addProxy adds the listeners that the plan's redirects need and that are not there.
func (n *Namespace) addProxy(plan *interception.Plan) {
	for _, rule := range plan.Rules() {
		redirect, ok := rule.Action.(interception.RedirectTo)
		if !ok {
			continue
		}
		protocol := rule.Match.L4.Protocol()
		there := slices.ContainsFunc(n.Listeners, func(l Listener) bool {
			return l.Protocol == protocol && l.Port == redirect.Port
		})
		if !there {
			name := fmt.Sprintf("proxy-%d", redirect.Port)
			n.Listeners = append(n.Listeners, Listener{Name: name, Proxy: true, Protocol: protocol, Port: redirect.Port})
		}
	}
}
