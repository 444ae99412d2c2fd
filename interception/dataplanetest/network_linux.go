// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// network is a pod, elsewhere, and the wire between them.
type network struct {
	pod, elsewhere *endpoint
	machine        *endpoint // nil without a machine
	mail           *mailbox
	relayedWithin  time.Duration

	mu        sync.Mutex
	addresses map[netip.Addr]bool // of eth0 in the pod
}

// outside holds elsewhere's own addresses of one family.
type outside struct {
	// client is the source of its connections (RFC 5737, RFC 3849), gateway the pod's next hop.
	client, gateway netip.Addr
	any             netip.Prefix
}

func outsideOf(a netip.Addr) outside {
	if a.Is4() {
		return outside{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("169.254.1.1"), netip.MustParsePrefix("0.0.0.0/0")}
	}
	return outside{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("fe80::1"), netip.MustParsePrefix("::/0")}
}

func openNetwork(ctx context.Context, directory string, o PodOptions) (_ *network, err error) {
	n := &network{mail: newMailbox(), relayedWithin: o.RelayedWithin, addresses: map[netip.Addr]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if n.pod, err = newPodEndpoint(filepath.Join(directory, "pod"), n.mail, o); err != nil {
		return nil, err
	}
	if n.elsewhere, err = newEndpoint(Elsewhere, filepath.Join(directory, "elsewhere"), n.mail); err != nil {
		return nil, err
	}
	if err := n.forward(o); err != nil {
		return nil, err
	}
	ends := [2]sandbox.End{{Namespace: n.pod.namespace, Name: eth0}, {Namespace: n.elsewhere.namespace, Name: eth0}}
	if err := sandbox.Connect(ctx, ends[0], ends[1]); err != nil {
		return nil, err
	}
	for _, family := range []outside{outsideOf(netip.IPv4Unspecified()), outsideOf(netip.IPv6Unspecified())} {
		if err := n.bringUp(ctx, family); err != nil {
			return nil, err
		}
	}
	for _, address := range o.Addresses {
		if err := n.addAddress(ctx, eth0, netip.PrefixFrom(address, address.BitLen())); err != nil {
			return nil, err
		}
	}
	if err := n.leadAll(o.Addresses); err != nil {
		return nil, err
	}
	if err := n.addMachine(ctx, filepath.Join(directory, "machine"), o); err != nil {
		return nil, err
	}
	return n, n.listen(ctx, o)
}

// listen opens the pod's listeners.
func (n *network) listen(ctx context.Context, o PodOptions) error {
	for _, port := range o.ProxyPorts {
		n.pod.owners[port] = owner{int(o.ProxyUID), int(o.ProxyGID), o.ProxyMark}
	}
	for _, port := range slices.Concat(o.Ports, o.ProxyPorts) {
		for _, protocol := range []Protocol{TCP, UDP} {
			if _, err := n.pod.listen(ctx, protocol, port); err != nil {
				return err
			}
		}
	}
	return nil
}

// bringUp makes every address of a family local elsewhere, and elsewhere the pod's default gateway.
func (n *network) bringUp(ctx context.Context, family outside) error {
	for _, address := range []netip.Addr{family.client, family.gateway} {
		if err := n.elsewhere.namespace.AddAddress(ctx, eth0, netip.PrefixFrom(address, address.BitLen())); err != nil {
			return err
		}
	}
	// Not in the table "local", which the kernel looks up first: the more specific route to the pod
	// has to win.
	everything := netlink.Route{Dst: sandbox.IPNet(family.any), Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: unix.RT_TABLE_MAIN}
	if err := n.elsewhere.addRoute("lo", everything); err != nil {
		return err
	}
	gateway := netlink.Route{Gw: family.gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
	return n.pod.addRoute(eth0, gateway)
}

// toPod is the mark, and the routing table, of everything that goes from elsewhere to the pod.
const toPod = 100

// leadAll routes marked packets from elsewhere to the pod, whatever their destination, and lets
// elsewhere send packets that a link should not carry: with loopback addresses as sources, which it
// does not use in requests for the pod's link address.
func (n *network) leadAll(addresses []netip.Addr) error {
	for _, is4 := range []bool{true, false} {
		if i := slices.IndexFunc(addresses, func(a netip.Addr) bool { return a.Is4() == is4 }); i >= 0 {
			if err := n.lead(addresses[i]); err != nil {
				return err
			}
		}
	}
	return n.elsewhere.namespace.Do(func() error {
		const of = "/proc/sys/net/ipv4/conf/" + eth0
		return errors.Join(os.WriteFile(of+"/route_localnet", []byte("1"), 0), os.WriteFile(of+"/arp_announce", []byte("2"), 0))
	})
}

// lead routes packets marked for the pod to it by one of its addresses.
func (n *network) lead(address netip.Addr) error {
	family := netlink.FAMILY_V6
	if address.Is4() {
		family = netlink.FAMILY_V4
	}
	rule := func(mark uint32, table, priority int) *netlink.Rule {
		r := netlink.NewRule()
		r.Family, r.Mark, r.Table, r.Priority = family, mark, table, priority
		return r
	}
	rules := n.elsewhere.namespace.Netlink()
	err := errors.Join( // before the lookup of elsewhere's own addresses
		rules.RuleAdd(rule(toPod, toPod, 1)), rules.RuleAdd(rule(0, unix.RT_TABLE_LOCAL, 2)), rules.RuleDel(rule(0, unix.RT_TABLE_LOCAL, 0)),
	)
	if err != nil {
		return fmt.Errorf("change rules in %s: %w", Elsewhere, err)
	}
	way := netlink.Route{
		Dst: sandbox.IPNet(outsideOf(address).any), Gw: address.AsSlice(), Flags: int(netlink.FLAG_ONLINK), Table: toPod,
	}
	return n.elsewhere.addRoute(eth0, way)
}

// addAddress also adds a route elsewhere, if the address is reachable from there.
func (n *network) addAddress(ctx context.Context, name string, address netip.Prefix) error {
	if err := n.pod.namespace.AddAddress(ctx, name, address); err != nil {
		return err
	}
	if name != eth0 {
		return nil
	}
	host := netip.PrefixFrom(address.Addr(), address.Addr().BitLen())
	client := outsideOf(address.Addr()).client
	route := netlink.Route{Dst: sandbox.IPNet(host), Src: client.AsSlice(), Scope: netlink.SCOPE_LINK}
	if err := n.elsewhere.addRoute(eth0, route); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses[address.Addr()] = true
	return nil
}

func (n *network) hasAddress(a netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addresses[a]
}

func (n *network) awaitAddress(ctx context.Context, a netip.Addr) error {
	return n.pod.namespace.AwaitLocal(ctx, a)
}

func (n *network) path() string            { return n.pod.namespace.Path() }
func (n *network) file() *os.File          { return n.pod.namespace.File() }
func (n *network) do(f func() error) error { return n.pod.namespace.Do(f) }

// close removes whatever exists: openNetwork may have stopped half-way.
func (n *network) close() error {
	var errs []error
	for _, e := range []*endpoint{n.pod, n.elsewhere, n.machine} {
		if e != nil {
			errs = append(errs, e.close())
		}
	}
	return errors.Join(errs...)
}

// addRoute adds a route through an interface.
func (e *endpoint) addRoute(name string, route netlink.Route) error {
	link, err := e.namespace.Netlink().LinkByName(name)
	if err == nil {
		route.LinkIndex = link.Attrs().Index
		err = e.namespace.Netlink().RouteAdd(&route)
	}
	if err != nil {
		return fmt.Errorf("add route in %s: %s: %w", e.place, route, err)
	}
	return nil
}

// addMachine adds a machine at a link of the pod, if the options have one.
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

// leadToMachine adds the route to the machine elsewhere, by an address of the pod.
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

// forward makes a pod with a machine forward packets, before it has links. Neighbour solicitations
// for forwarded packets come from a link-local address, which is usable at once without duplicate
// address detection.
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
