// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/ip"
	"github.com/containernetworking/plugins/pkg/ipam"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// The gateways of every pod. No link has these addresses.
const (
	gateway4 = "169.254.1.1"
	gateway6 = "fe80::1"
)

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del, Check: func(*skel.CmdArgs) error { return nil }}, version.All, "routed")
}

func add(args *skel.CmdArgs) error {
	var conf types.PluginConf
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	given, err := ipam.ExecAdd(conf.IPAM.Type, args.StdinData)
	if err != nil {
		return err
	}
	result, err := current.NewResultFromResult(given)
	if err != nil {
		return err
	}
	if err := connect(args, result); err != nil {
		return errors.Join(err, ipam.ExecDel(conf.IPAM.Type, args.StdinData))
	}
	return types.PrintResult(result, conf.CNIVersion)
}

func connect(args *skel.CmdArgs, result *current.Result) error {
	pod, err := ns.GetNS(args.Netns)
	if err != nil {
		return err
	}
	defer func() { _ = pod.Close() }()
	var outside, inside net.Interface
	err = pod.Do(func(node ns.NetNS) error {
		outside, inside, err = ip.SetupVeth(args.IfName, 1500, "", node)
		if err != nil {
			return err
		}
		return configurePod(inside.Index, outside.HardwareAddr, result.IPs)
	})
	if err != nil {
		return err
	}
	result.Interfaces = []*current.Interface{{Name: outside.Name, Mac: outside.HardwareAddr.String()}, {
		Name: inside.Name, Mac: inside.HardwareAddr.String(), Sandbox: args.Netns,
	}}
	for _, address := range result.IPs {
		address.Interface, address.Gateway = current.Int(1), nil
	}
	result.Routes = []*types.Route{
		{Dst: everything("0.0.0.0/0"), GW: net.ParseIP(gateway4)}, {Dst: everything("::/0"), GW: net.ParseIP(gateway6)},
	}
	return configureNode(outside.Name, result.IPs)
}

// configurePod sets the addresses, routes and neighbours of the pod's end.
func configurePod(index int, gateway net.HardwareAddr, addresses []*current.IPConfig) error {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	for _, given := range addresses {
		via, bits := net.ParseIP(gateway4), 32
		if given.Address.IP.To4() == nil {
			via, bits = net.ParseIP(gateway6), 128
		}
		given.Address.Mask = net.CIDRMask(bits, bits)
		address := &netlink.Addr{IPNet: &given.Address}
		if bits == 128 {
			address.Flags = 0x02 // IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("address %s: %w", given.Address.String(), err)
		}
		neighbour := &netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: via, HardwareAddr: gateway}
		if err := netlink.NeighSet(neighbour); err != nil {
			return fmt.Errorf("neighbour %s: %w", via, err)
		}
		only := &net.IPNet{IP: via, Mask: net.CIDRMask(bits, bits)}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: only, Scope: netlink.SCOPE_LINK}); err != nil {
			return fmt.Errorf("route to %s: %w", via, err)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: index, Gw: via}); err != nil {
			return fmt.Errorf("default route by %s: %w", via, err)
		}
	}
	return nil
}

// configureNode adds the routes to the pod, and answers ARP requests for the gateway (proxy_arp).
func configureNode(name string, addresses []*current.IPConfig) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for setting, value := range map[string]string{
		"ipv4/conf/" + name + "/proxy_arp": "1", "ipv4/conf/" + name + "/forwarding": "1", "ipv6/conf/" + name + "/forwarding": "1",
	} {
		if err := os.WriteFile("/proc/sys/net/"+setting, []byte(value), 0); err != nil {
			return err
		}
	}
	for _, given := range addresses {
		destination := given.Address
		if err := netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: &destination, Scope: netlink.SCOPE_LINK}); err != nil {
			return fmt.Errorf("route to %s: %w", destination.String(), err)
		}
	}
	return nil
}

// everything returns a default route's destination.
func everything(prefix string) net.IPNet {
	_, network, err := net.ParseCIDR(prefix)
	if err != nil {
		return net.IPNet{}
	}
	return *network
}

// del removes the pod's end, and with it the node's end and its routes.
func del(args *skel.CmdArgs) error {
	var conf types.PluginConf
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if err := ipam.ExecDel(conf.IPAM.Type, args.StdinData); err != nil {
		return err
	}
	if args.Netns == "" {
		return nil
	}
	err := ns.WithNetNSPath(args.Netns, func(ns.NetNS) error {
		if err := ip.DelLinkByName(args.IfName); err != nil && !errors.Is(err, ip.ErrLinkNotFound) {
			return err
		}
		return nil
	})
	if gone := (ns.NSPathNotExistErr{}); errors.As(err, &gone) {
		return nil
	}
	return err
}
