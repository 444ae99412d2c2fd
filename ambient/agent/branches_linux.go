// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/namespace"
)

// findBranches returns those of the addresses to which the network's plugin has a table of its own
// lead, as [ambient.Branch] describes it: none where net.ipv4.tcp_early_demux is on, as the plugin
// turns it off for such pods. Of several policy rules for an address, or for a link, the first one
// counts.
func findBranches(host *interception.Netns, addresses []netip.Addr) (branches []ambient.Branch, err error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	demux, err := kernel.Of(host.File()).ReadSysctl("ipv4/tcp_early_demux")
	if err != nil || strings.TrimSpace(demux) != "0" {
		return nil, err
	}
	err = namespace.Run(host.File(), func() error {
		for _, family := range families() {
			if !slices.ContainsFunc(addresses, func(a netip.Addr) bool { return interception.FamilyOf(a) == family }) {
				continue // the kernel may lack the family
			}
			found, err := branchesOf(family, addresses)
			if err != nil {
				return err
			}
			branches = append(branches, found...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for pods with routing tables of their own: %w", err)
	}
	slices.SortFunc(branches, func(a, b ambient.Branch) int { return a.Pod.Compare(b.Pod) })
	return branches, nil
}

// branchesOf is findBranches for a family, in the thread's namespace.
func branchesOf(family interception.Family, addresses []netip.Addr) (branches []ambient.Branch, err error) {
	number := unix.AF_INET
	if family == interception.IPv6 {
		number = unix.AF_INET6
	}
	rules, err := netlink.RuleList(number)
	if err != nil {
		return nil, fmt.Errorf("list policy rules: %w", err)
	}
	links, pods := map[string]bool{}, map[netip.Addr]bool{} // that have a branch
	for _, rule := range rules {
		if !mayBranch(rule) || links[rule.IifName] {
			continue
		}
		routes, err := netlink.RouteListFiltered(number, &netlink.Route{Table: rule.Table}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("list the routes of table %d: %w", rule.Table, err)
		}
		link, err := net.InterfaceByName(rule.IifName)
		if err != nil {
			continue // the link of the rule is gone
		}
		for _, address := range addresses {
			if pods[address] || !slices.ContainsFunc(routes, leadsTo(address, link.Index)) {
				continue
			}
			links[rule.IifName], pods[address] = true, true
			branches = append(branches, ambient.Branch{
				Pod: address, Link: interception.Interface(rule.IifName), Table: interception.RoutingTable(rule.Table), Priority: uint32(rule.Priority),
			})
			break
		}
	}
	return branches, nil
}

// mayBranch reports whether a policy rule has a table of its own for all that comes by a link, and
// leaves room for another one before it.
func mayBranch(r netlink.Rule) bool {
	kernels := []int{unix.RT_TABLE_UNSPEC, unix.RT_TABLE_DEFAULT, unix.RT_TABLE_MAIN, unix.RT_TABLE_LOCAL}
	return r.IifName != "" && r.Src == nil && r.Dst == nil && r.Mark == 0 && !r.Invert && r.Priority >= 2 && !slices.Contains(kernels, r.Table)
}

// leadsTo returns whether a route is to the address alone, by the link.
func leadsTo(address netip.Addr, link int) func(netlink.Route) bool {
	return func(r netlink.Route) bool {
		if r.Dst == nil || r.LinkIndex != link {
			return false
		}
		to, ok := netip.AddrFromSlice(r.Dst.IP)
		ones, bits := r.Dst.Mask.Size()
		return ok && to.Unmap() == address && ones == bits
	}
}
