// SPDX-License-Identifier: Apache-2.0

package upstreamtest

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// NodeCommands returns the options with which the agent of Istio 1.18 to 1.20 starts iptables on a
// node whose proxy has the address 10.244.0.14 on vethz (cni/pkg/ambient/net_linux.go of Istio), in
// its order. The first word is the table.
func NodeCommands(release upstream.NodeRelease, dns bool) []string {
	commands := strings.Split(strings.TrimSpace(`
nat -N ztunnel-PREROUTING
nat -I PREROUTING -j ztunnel-PREROUTING
nat -N ztunnel-POSTROUTING
nat -I POSTROUTING -j ztunnel-POSTROUTING
mangle -N ztunnel-PREROUTING
mangle -I PREROUTING -j ztunnel-PREROUTING
mangle -N ztunnel-POSTROUTING
mangle -I POSTROUTING -j ztunnel-POSTROUTING
mangle -N ztunnel-OUTPUT
mangle -I OUTPUT -j ztunnel-OUTPUT
mangle -N ztunnel-INPUT
mangle -I INPUT -j ztunnel-INPUT
mangle -N ztunnel-FORWARD
mangle -I FORWARD -j ztunnel-FORWARD
mangle -A ztunnel-PREROUTING -i istioin -j MARK --set-mark 0x200/0x200
mangle -A ztunnel-PREROUTING -i istioin -j RETURN
mangle -A ztunnel-PREROUTING -i istioout -j MARK --set-mark 0x200/0x200
mangle -A ztunnel-PREROUTING -i istioout -j RETURN
mangle -A ztunnel-FORWARD -m mark --mark 0x220/0x220 -j CONNMARK --save-mark --nfmask 0x220 --ctmask 0x220
mangle -A ztunnel-INPUT -m mark --mark 0x220/0x220 -j CONNMARK --save-mark --nfmask 0x220 --ctmask 0x220
mangle -A ztunnel-FORWARD -m mark --mark 0x210/0x210 -j CONNMARK --save-mark --nfmask 0x210 --ctmask 0x210
mangle -A ztunnel-INPUT -m mark --mark 0x210/0x210 -j CONNMARK --save-mark --nfmask 0x210 --ctmask 0x210
nat -A ztunnel-PREROUTING -m mark --mark 0x100/0x100 -j ACCEPT
nat -A ztunnel-POSTROUTING -m mark --mark 0x100/0x100 -j ACCEPT
mangle -A ztunnel-PREROUTING -p udp -m udp --dport 6081 -j RETURN
mangle -A ztunnel-PREROUTING -m connmark --mark 0x220/0x220 -j MARK --set-mark 0x200/0x200
mangle -A ztunnel-PREROUTING -m mark --mark 0x200/0x200 -j RETURN
mangle -A ztunnel-PREROUTING ! -i vethz -m connmark --mark 0x210/0x210 -j MARK --set-mark 0x40/0x40
mangle -A ztunnel-PREROUTING -m mark --mark 0x40/0x40 -j RETURN
mangle -A ztunnel-PREROUTING -i vethz ! --source 10.244.0.14 -j MARK --set-mark 0x210/0x210
mangle -A ztunnel-PREROUTING -m mark --mark 0x200/0x200 -j RETURN
mangle -A ztunnel-PREROUTING -i vethz -j MARK --set-mark 0x220/0x220
mangle -A ztunnel-PREROUTING -p udp -j MARK --set-mark 0x220/0x220
mangle -A ztunnel-PREROUTING -m mark --mark 0x200/0x200 -j RETURN
mangle -A ztunnel-PREROUTING -p tcp -m set --match-set ztunnel-pods-ips src -j MARK --set-mark 0x100/0x100`), "\n")
	if release == upstream.NodeRelease120 {
		commands = append(commands, "mangle -A ztunnel-OUTPUT -p tcp --source 192.0.2.1 -m owner --socket-exists "+
			"-m set --match-set ztunnel-pods-ips dst -j MARK --set-mark 0x220")
	} else {
		commands = append(commands, "mangle -A ztunnel-OUTPUT --source 192.0.2.1 -j MARK --set-mark 0x220")
	}
	if release != upstream.NodeRelease118 {
		commands = append(commands, "filter -N ztunnel-FORWARD", "filter -I FORWARD -j ztunnel-FORWARD",
			"filter -A ztunnel-FORWARD -m mark --mark 0x100/0x100 -j ACCEPT")
	}
	if dns {
		commands = append(commands, "nat -A ztunnel-PREROUTING -p udp -m set --match-set ztunnel-pods-ips src "+
			"-m udp --dport 53 -j DNAT --to 10.244.0.14:15053")
	}
	return commands
}

// NodeNetwork are the options of ip with which the agent of Istio 1.18 to 1.20 makes addresses,
// routes and policy rules on a node (cni/pkg/ambient/net_linux.go of Istio), once its tunnels are
// there.
const NodeNetwork = `address add 192.168.126.1/30 dev istioin
address add 192.168.127.1/30 dev istioout
link set istioin up
link set istioout up
route add table 101 10.244.0.14 dev vethz scope link
route add table 101 0.0.0.0/0 via 192.168.127.2 dev istioout
route add table 102 10.244.0.14 dev vethz scope link
route add table 102 0.0.0.0/0 via 10.244.0.14 dev vethz onlink
route add table 100 10.244.0.14 dev vethz scope link
rule add priority 100 fwmark 0x200/0x200 goto 32766
rule add priority 101 fwmark 0x100/0x100 lookup 101
rule add priority 102 fwmark 0x40/0x40 lookup 102
rule add priority 103 table 100`

// proxyNetwork are the options of ip with which the agent makes routes and policy rules in the
// proxy's namespace, once its tunnels are there.
const proxyNetwork = `address add 192.168.126.2/30 dev pistioin
address add 192.168.127.2/30 dev pistioout
link set pistioin up
link set pistioout up
rule add priority 20000 fwmark 0x400/0xfff lookup 100
rule add priority 20003 fwmark 0x4d3/0xfff lookup 100
route add table 100 local 0.0.0.0/0 dev lo scope host
route add table 101 0.0.0.0/0 via 192.168.127.1 dev pistioout
route add table 102 0.0.0.0/0 via 192.168.126.1 dev pistioin
route add table 101 192.0.2.1 dev eth0 scope link
route add table 102 192.0.2.1 dev eth0 scope link`

// proxyRules are the agent's rules in the proxy's namespace.
const proxyRules = `*mangle
-A PREROUTING -p tcp -i pistioin -m tcp --dport 15008 -j TPROXY --tproxy-mark 0x400/0xfff --on-port 15008 --on-ip 127.0.0.1
-A PREROUTING -p tcp -i pistioout -j TPROXY --tproxy-mark 0x400/0xfff --on-port 15001 --on-ip 127.0.0.1
-A PREROUTING -p tcp -i pistioin -j TPROXY --tproxy-mark 0x400/0xfff --on-port 15006 --on-ip 127.0.0.1
-A PREROUTING -p tcp -i eth0 ! --dst 10.244.0.14 -j MARK --set-mark 0x4d3/0xfff
COMMIT
`

// Node is a node on which the agent of Istio 1.18 to 1.20 captures for a proxy in a pod of its own.
type Node struct {
	// Release is the agent's, and Program what it writes its rules by.
	Release upstream.NodeRelease
	Program Program
	// Host and Proxy are the namespaces of the node and of the proxy's pod, whose interface is eth0.
	Host, Proxy *os.File
	// Link is the node's interface to the proxy's pod. Address is the pod's address, and HostAddress
	// is the node's.
	Link                 interception.Interface
	Address, HostAddress netip.Addr
	// Pods are the addresses of the meshed pods, with their UIDs.
	Pods map[netip.Addr]string
}

// InstallNode captures as the agent does, with tunnels of VXLAN in the place of GENEVE, which fewer
// kernels have. Both carry the mark of a packet from its encapsulation to what was within.
func InstallNode(t testing.TB, n Node) {
	t.Helper()
	actual := strings.NewReplacer("vethz", string(n.Link), "10.244.0.14", n.Address.String(), "192.0.2.1", n.HostAddress.String())
	ip := func(in *os.File, options string) {
		for line := range strings.Lines(actual.Replace(options)) {
			sandboxtest.Run(t, in, "", append([]string{"ip"}, strings.Fields(line)...)...)
		}
	}
	tunnels := func(in *os.File, prefix string, remote netip.Addr) {
		for i, name := range []string{"istioin", "istioout"} {
			ip(in, fmt.Sprintf("link add %s%s type vxlan id %d remote %s dstport 6081", prefix, name, 1000+i, remote))
		}
	}
	n.set(t)
	sandboxtest.Run(t, n.Host, actual.Replace(restorable(NodeCommands(n.Release, false))), string(n.Program)+"-restore", "--noflush")
	for _, name := range []string{"default", "all", string(n.Link)} {
		sandboxtest.Run(t, n.Host, "", "sysctl", "-q", "-w", "net.ipv4.conf."+name+".rp_filter=0")
	}
	sandboxtest.Run(t, n.Host, "", "sysctl", "-q", "-w", "net.ipv4.conf."+string(n.Link)+".accept_local=1")
	tunnels(n.Host, "", n.Address)
	ip(n.Host, NodeNetwork)
	for address := range n.Pods {
		ip(n.Host, fmt.Sprintf("route add table 100 %s/32 via 192.168.126.2 dev istioin src %s", address, n.HostAddress))
	}
	tunnels(n.Proxy, "p", n.HostAddress)
	ip(n.Proxy, proxyNetwork)
	sandboxtest.Run(t, n.Proxy, actual.Replace(proxyRules), string(n.Program)+"-restore", "--noflush")
	for _, name := range []string{"default", "all", "eth0", "pistioin", "pistioout"} {
		sandboxtest.Run(t, n.Proxy, "", "sysctl", "-q", "-w", "net.ipv4.conf."+name+".rp_filter=0")
	}
}

// UninstallProxy removes what InstallNode has put into the proxy's namespace, as the agent does
// when it begins anew: it flushes the whole chain that its rules are in.
func (n Node) UninstallProxy(t testing.TB) {
	t.Helper()
	for _, options := range []string{
		"rule del priority 20000", "rule del priority 20003", "link del pistioin", "link del pistioout",
		"route flush table 100", "route flush table 101", "route flush table 102",
	} {
		sandboxtest.Run(t, n.Proxy, "", append([]string{"ip"}, strings.Fields(options)...)...)
	}
	sandboxtest.Run(t, n.Proxy, "", string(n.Program), "-t", "mangle", "-F", "PREROUTING")
}

// set makes the agent's ipset.
func (n Node) set(t testing.TB) {
	t.Helper()
	socket, err := ipset.Dial(kernel.Of(n.Host))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := socket.Create(string(upstream.NodePods), ipset.OfAddresses, interception.IPv4); err != nil {
		t.Fatal(err)
	}
	for address, uid := range n.Pods {
		if err := socket.Add(string(upstream.NodePods), ipset.Member{Prefix: netip.PrefixFrom(address, 32), Comment: uid}); err != nil {
			t.Fatal(err)
		}
	}
}

// restorable returns commands as iptables-restore reads them.
func restorable(commands []string) (text string) {
	for _, table := range []string{"nat", "mangle", "filter"} {
		text += "*" + table + "\n"
		for _, command := range commands {
			if options, is := strings.CutPrefix(command, table+" "); is {
				text += options + "\n"
			}
		}
		text += "COMMIT\n"
	}
	return text
}
