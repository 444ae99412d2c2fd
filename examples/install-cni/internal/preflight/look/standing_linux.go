// SPDX-License-Identifier: Apache-2.0

package look

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient/collision"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/route"
)

// standing looks at what other programs have in the host's namespace. What the agent itself has
// there is left out.
func standing(ctx context.Context, in *interception.Netns) (s collision.Standing, err error) {
	dataplane, err := nftables.New(nftables.Options{Foreign: true})
	if err != nil {
		return s, err
	}
	state, err := dataplane.Observe(ctx, in, ambientconf.NodeOwner)
	if err != nil {
		return s, fmt.Errorf("read the rules: %w", err)
	}
	s.Chains = slices.DeleteFunc(state.Foreign, isOwnChain)
	return s, namespace.Run(in.File(), func() error {
		for _, read := range []func(*collision.Standing) error{linksOf, rulesOf, routesOf, portsOf} {
			if err := read(&s); err != nil {
				return err
			}
		}
		return nil
	})
}

func linksOf(s *collision.Standing) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, link := range links {
		attributes := link.Attrs()
		if isOwn(link) {
			continue
		}
		s.Links = append(s.Links, interception.Interface(attributes.Name))
		addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("list addresses of %s: %w", attributes.Name, err)
		}
		for _, address := range addresses {
			if prefix := prefixOf(address.IPNet); prefix.IsValid() {
				s.Addresses = append(s.Addresses, prefix)
			}
		}
	}
	return nil
}

func rulesOf(s *collision.Standing) error {
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		number := netlink.FAMILY_V4
		if family == interception.IPv6 {
			number = netlink.FAMILY_V6
		}
		rules, err := netlink.RuleList(number)
		if err != nil {
			return fmt.Errorf("list policy rules: %w", err)
		}
		for _, rule := range rules {
			if isOwnProtocol(rule.Protocol) {
				continue
			}
			seen := interception.PolicyRule{
				Family: family, Priority: uint32(max(rule.Priority, 0)), Table: interception.RoutingTable(rule.Table),
				In: interception.Interface(rule.IifName), Source: prefixOf(rule.Src), Destination: prefixOf(rule.Dst),
				Mark: interception.MarkBits{Value: interception.Mark(rule.Mark)},
			}
			if rule.Mask != nil {
				seen.Mark.Mask = interception.Mark(*rule.Mask)
			}
			s.PolicyRules = append(s.PolicyRules, seen)
		}
	}
	return nil
}

func routesOf(s *collision.Standing) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: 0}, netlink.RT_FILTER_TABLE) // of all tables
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if isOwnProtocol(uint8(r.Protocol)) {
				continue
			}
			seen := interception.Route{Destination: prefixOf(r.Dst), Table: interception.RoutingTable(r.Table)}
			if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil { // a route may have none
				seen.Device = interception.Interface(link.Attrs().Name)
			}
			s.Routes = append(s.Routes, seen)
		}
	}
	return nil
}

// portsOf reads the local ports of UDP sockets and of tunnels. The files show the namespace that
// this thread is in.
func portsOf(s *collision.Standing) error {
	for _, file := range []string{"/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"} {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // the kernel lacks the family
		}
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 2 {
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			if port, err := strconv.ParseUint(hex, 16, 16); err == nil { // the heading has none
				s.UDPPorts = append(s.UDPPorts, interception.Port(port))
			}
		}
	}
	links, err := netlink.LinkList()
	for _, link := range links {
		tunnel, is := link.(*netlink.Vxlan)
		switch {
		case is && isOwn(link): // the kernel's socket for it
			s.UDPPorts = slices.DeleteFunc(s.UDPPorts, func(p interception.Port) bool { return int(p) == tunnel.Port })
		case is:
			s.UDPPorts = append(s.UDPPorts, interception.Port(tunnel.Port))
		}
	}
	return err
}

// isOwn reports whether a link is the agent's.
func isOwn(link netlink.Link) bool {
	return link.Attrs().Alias == "meshcni "+string(ambientconf.NodeOwner)
}

// isOwnChain reports whether a chain is the agent's, in either form of capture, by package nftables
// or by package iptables.
func isOwnChain(c interception.ForeignChain) bool {
	return slices.ContainsFunc(ambientconf.Owners(), func(owner interception.Owner) bool {
		return c.Table == "inet "+string(owner) || c.Hook == "" && strings.HasPrefix(c.Name, strings.ToUpper(string(owner))+"_")
	})
}

// isOwnProtocol reports whether a route or a policy rule is the agent's, in either form of capture.
func isOwnProtocol(protocol uint8) bool {
	return slices.ContainsFunc(ambientconf.Owners(), func(owner interception.Owner) bool { return route.Protocol(owner) == protocol })
}

// prefixOf returns a prefix; the zero Prefix for none.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	address, _ := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(address.Unmap(), ones)
}

// missingTunnels says that the kernel cannot make the tunnels, if that is so. They are tried in a
// namespace that is thrown away.
func missingTunnels(scratch *interception.Netns) (missing string, err error) {
	err = namespace.Run(scratch.File(), func() error {
		const vni, port = 1000, 6081
		return netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "istioin"}, VxlanId: vni, Port: port, Group: net.IPv4(192, 0, 2, 1)})
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return "the kernel has no VXLAN tunnels (module vxlan)", nil
	}
	return "", err
}
