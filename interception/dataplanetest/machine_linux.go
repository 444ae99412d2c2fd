// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/internal/sandbox"
)

// addMachine makes a machine behind a link of the pod, if it is to have one.
func (n *network) addMachine(ctx context.Context, path string, o PodOptions) (err error) {
	if o.MachineLink == "" {
		return nil
	}
	if n.machine, err = newEndpoint(InMachine, path, n.mail); err != nil {
		return err
	}
	ends := [2]sandbox.End{{Namespace: n.pod.namespace, Name: o.MachineLink}, {Namespace: n.machine.namespace, Name: eth0}}
	if err := sandbox.Connect(ctx, ends[0], ends[1]); err != nil {
		return err
	}
	for _, address := range Machine() {
		gateway := netip.PrefixFrom(address.Addr().Prev(), address.Bits())
		if err := n.pod.namespace.AddAddress(ctx, o.MachineLink, gateway); err != nil {
			return err
		}
		if err := n.machine.namespace.AddAddress(ctx, eth0, address); err != nil {
			return err
		}
		if err := n.machine.addRoute(eth0, netlink.Route{Gw: gateway.Addr().AsSlice()}); err != nil {
			return err
		}
		if err := n.leadToMachine(address.Addr(), o.Addresses); err != nil {
			return err
		}
	}
	return nil
}

// leadToMachine shows elsewhere the way to the machine, by an address of the pod's.
func (n *network) leadToMachine(machine netip.Addr, pod []netip.Addr) error {
	i := slices.IndexFunc(pod, func(a netip.Addr) bool { return a.Is4() == machine.Is4() })
	if i < 0 {
		return nil
	}
	way := netlink.Route{
		Dst: sandbox.IPNet(netip.PrefixFrom(machine, machine.BitLen())), Gw: pod[i].AsSlice(), Flags: int(netlink.FLAG_ONLINK),
		Src: outsideOf(machine).client.AsSlice(),
	}
	return n.elsewhere.addRoute(eth0, way)
}

// forward has a pod with a machine forward packets, before it has links. For what it forwards, it asks for neighbours in the name
// of a link-local address, which is usable at once when no duplicates are looked for.
func (n *network) forward(o PodOptions) error {
	if o.MachineLink == "" {
		return nil
	}
	return n.pod.namespace.Do(func() error {
		for name, value := range map[string]string{
			"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", "ipv6/conf/default/accept_dad": "0",
		} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
				return fmt.Errorf("have the pod forward: %w", err)
			}
		}
		return nil
	})
}
