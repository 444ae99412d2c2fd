// SPDX-License-Identifier: Apache-2.0

package look

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// within looks at the links, the policy rules and a sysctl of a network namespace.
func within(in *interception.Netns, v *preflight.View) error {
	return namespace.Run(in.File(), func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return fmt.Errorf("list links: %w", err)
		}
		for _, link := range links {
			seen, err := lookAtLink(link, links)
			if err != nil {
				return fmt.Errorf("link %s: %w", link.Attrs().Name, err)
			}
			v.Links = append(v.Links, seen)
		}
		rules, err := netlink.RuleList(netlink.FAMILY_ALL)
		if err != nil {
			return fmt.Errorf("list policy rules: %w", err)
		}
		for _, rule := range rules {
			v.Rules = append(v.Rules, preflight.Rule{Priority: max(rule.Priority, 0), From: rule.IifName, Table: rule.Table})
		}
		// The file shows the value of the namespace that this thread is in.
		text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_early_demux")
		v.EarlyDemux = strings.TrimSpace(string(text)) == "1"
		return err
	})
}

// lookAtLink looks at one of the links.
func lookAtLink(link netlink.Link, all []netlink.Link) (preflight.Link, error) {
	attributes := link.Attrs()
	seen := preflight.Link{Name: attributes.Name, Kind: link.Type()}
	for _, other := range all {
		if bridge, is := other.(*netlink.Bridge); is && bridge.Index == attributes.MasterIndex {
			seen.Bridge = bridge.Name
		}
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return seen, fmt.Errorf("list addresses: %w", err)
	}
	for _, address := range addresses {
		if ip, is := netip.AddrFromSlice(address.IP); is {
			seen.Addresses = append(seen.Addresses, ip.Unmap())
		}
	}
	for _, hook := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		filters, err := netlink.FilterList(link, hook)
		if err != nil {
			continue // the link has no queueing discipline with such a hook
		}
		for _, filter := range filters {
			if program, is := filter.(*netlink.BpfFilter); is {
				seen.Programs = append(seen.Programs, program.Name)
			}
		}
	}
	return seen, nil
}
