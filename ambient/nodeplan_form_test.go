// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"encoding/json"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
)

var update = flag.Bool("update", false, "rewrite testdata from what the planners say")

// nodePlans returns every form of the plans, by a name for its file.
func nodePlans(t *testing.T) map[string]*interception.Plan {
	t.Helper()
	veth, vxlan, successor, quiet := nodeProxy(), nodeProxy(), nodeProxy(), nodeProxy()
	vxlan.Way, vxlan.MTU = WayVXLAN, 9000
	successor.Generation = 7
	quiet.Addresses, quiet.DNS = quiet.Addresses[1:], false
	all := map[string]*interception.Plan{}
	add := func(name string, plan *interception.Plan, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = plan
	}
	for name, proxy := range map[string]NodeProxy{"veth": veth, "vxlan": vxlan, "successor": successor, "v6-only": quiet, "none": {}} {
		for facts, f := range map[string]interception.Facts{"": dual(), "-v4": {}} {
			if name == "v6-only" && facts == "-v4" {
				continue
			}
			plan, err := NodePlan(proxy, IstioNodeNumbers(), f, "test-ambient")
			add("node-"+name+facts, plan, err)
			if name == "successor" {
				plan, err = NodePlan(proxy, IstioNodeNumbers(), f, "test-ambient", veth)
				add("node-change"+facts, plan, err)
				plan, err = NodePlan(NodeProxy{}, IstioNodeNumbers(), f, "test-ambient", veth)
				add("node-first"+facts, plan, err)
			}
			if !proxy.IsZero() {
				plan, err = ProxyPlan(proxy, IstioNodeNumbers(), f, "test-ambient")
				add("proxy-"+name+facts, plan, err)
			}
		}
	}
	return all
}

func TestNodePlansAreAsWritten(t *testing.T) {
	t.Parallel()
	plans := nodePlans(t)
	for name, plan := range plans {
		path := filepath.Join("testdata", "node", name+".txt")
		if *update {
			if err := os.WriteFile(path, []byte(plan.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(text), plan.String()); diff != "" {
			t.Errorf("%s (-file +now): run go test ./ambient -update, and read the difference:\n%s", path, diff)
		}
	}
	files, err := filepath.Glob("testdata/node/*")
	if err != nil || len(files) != len(plans) {
		t.Errorf("%d files for %d plans, %v", len(files), len(plans), err)
	}
}

func TestNodePlansHaveNoRuleInVain(t *testing.T) {
	t.Parallel()
	for name, plan := range nodePlans(t) {
		if findings, err := proof.Lint(plan, proof.Options{}); err != nil || len(findings) > 0 {
			t.Errorf("%s: %v, %v\n%s", name, findings, err, plan)
		}
	}
}

func TestNodePlansRoundTrip(t *testing.T) {
	t.Parallel()
	for name, plan := range nodePlans(t) {
		text, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		var again interception.Plan
		if err := json.Unmarshal(text, &again); err != nil || again.String() != plan.String() || again.Fingerprint() != plan.Fingerprint() {
			t.Errorf("%s: %v\n%s", name, err, &again)
		}
	}
}

// TestNodePlansWithoutIPv6NameNoIPv6 looks for the family in the text.
func TestNodePlansWithoutIPv6NameNoIPv6(t *testing.T) {
	t.Parallel()
	for name, plan := range nodePlans(t) {
		if strings.HasSuffix(name, "-v4") && strings.Contains(plan.String(), "v6") {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

func TestWireMTU(t *testing.T) {
	t.Parallel()
	proxy := nodeProxy()
	over6 := proxy
	over6.Node = netip.MustParseAddr("2001:db8::1")
	for _, test := range []struct {
		proxy NodeProxy
		way   Way
		mtu   int
		want  int
	}{
		{proxy, WayVeth, 0, 1500},
		{proxy, WayVeth, 9000, 9000},
		{proxy, WayVXLAN, 0, 1450},
		{proxy, WayVXLAN, 9000, 8950},
		{over6, WayVXLAN, 1500, 1430},
	} {
		test.proxy.Way, test.proxy.MTU = test.way, test.mtu
		plan, err := NodePlan(test.proxy, IstioNodeNumbers(), dual(), "test-ambient")
		if err != nil {
			t.Fatal(err)
		}
		for link := range interception.ObjectsOf[interception.Link](plan) {
			if link.MTU != test.want {
				t.Errorf("%s of MTU %d: %s has %d, want %d", test.way, test.mtu, link.Name, link.MTU, test.want)
			}
		}
	}
}

func TestNodeProxyIsChecked(t *testing.T) {
	t.Parallel()
	address := netip.MustParseAddr
	for name, change := range map[string]func(*NodeProxy){
		"two addresses of a family": func(p *NodeProxy) { p.Addresses = append(p.Addresses, address("10.244.0.15")) },
		"an IPv4-mapped address":    func(p *NodeProxy) { p.Addresses[0] = address("::ffff:10.244.0.14") },
		"a zone":                    func(p *NodeProxy) { p.Addresses[1] = address("fe80::1%eth0") },
		"an invalid address":        func(p *NodeProxy) { p.Addresses[0] = netip.Addr{} },
		"a loopback address":        func(p *NodeProxy) { p.Addresses[0] = address("127.0.0.1") },
		"a multicast address":       func(p *NodeProxy) { p.Addresses[1] = address("ff02::1") },
		"no address":                func(p *NodeProxy) { p.Addresses[0] = address("0.0.0.0") },
		"the node's address":        func(p *NodeProxy) { p.Addresses[0] = p.Node },
		"an MTU without room":       func(p *NodeProxy) { p.MTU = 1300 },
		"no label":                  func(p *NodeProxy) { p.Namespace = "" },
		"an unknown way":            func(p *NodeProxy) { p.Way = 9 },
		"a tunnel without a node":   func(p *NodeProxy) { p.Way, p.Node = WayVXLAN, netip.Addr{} },
		"a tunnel of another family": func(p *NodeProxy) {
			p.Way, p.Addresses = WayVXLAN, p.Addresses[1:]
		},
	} {
		proxy := nodeProxy()
		change(&proxy)
		if plan, err := NodePlan(proxy, IstioNodeNumbers(), dual(), "test-ambient"); !errors.Is(err, ErrNodeProxy) || plan != nil {
			t.Errorf("%s: NodePlan: %v, want ErrNodeProxy", name, err)
		}
		if plan, err := ProxyPlan(proxy, IstioNodeNumbers(), dual(), "test-ambient"); !errors.Is(err, ErrNodeProxy) || plan != nil {
			t.Errorf("%s: ProxyPlan: %v, want ErrNodeProxy", name, err)
		}
	}
	for name, of := range map[string][2]NodeProxy{
		"the same generation": {nodeProxy(), nodeProxy()}, "another, but none": {nodeProxy(), {Generation: 1}},
	} {
		if plan, err := NodePlan(of[0], IstioNodeNumbers(), dual(), "test-ambient", of[1]); !errors.Is(err, ErrNodeProxy) || plan != nil {
			t.Errorf("%s: %v, want ErrNodeProxy", name, err)
		}
	}
	onlyV6 := nodeProxy()
	onlyV6.Addresses = onlyV6.Addresses[1:]
	for name, proxy := range map[string]NodeProxy{"no proxy": {}, "a proxy of IPv6 where there is none": onlyV6} {
		if plan, err := ProxyPlan(proxy, IstioNodeNumbers(), interception.Facts{}, "test-ambient"); !errors.Is(err, ErrNodeProxy) || plan != nil {
			t.Errorf("%s: ProxyPlan: %v, want ErrNodeProxy", name, err)
		}
	}
}

func TestNodeNumbersAreChecked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*NodeNumbers){
		"no numbers":                        func(n *NodeNumbers) { *n = NodeNumbers{} },
		"no zone":                           func(n *NodeNumbers) { n.Zone = 0 },
		"no zone for odd generations":       func(n *NodeNumbers) { n.Zone = 0xffff },
		"no mark":                           func(n *NodeNumbers) { n.Replies.Mark = interception.MarkBits{} },
		"a mark of 0":                       func(n *NodeNumbers) { n.Outbound.Mark = interception.MarkBits{Mask: 0x100} },
		"marks of packets share a bit":      func(n *NodeNumbers) { n.Replies.Mark = n.Outbound.Mark },
		"marks of connections share a bit":  func(n *NodeNumbers) { n.Opened = interception.MarkBits{Value: 0x10, Mask: 0x810} },
		"marks of the proxy can be one":     func(n *NodeNumbers) { n.Delivered.Mark = n.Transparent.Mark },
		"no mark of the proxy":              func(n *NodeNumbers) { n.Delivered.Mark = interception.MarkBits{} },
		"a table of the kernel":             func(n *NodeNumbers) { n.Inbound.Table = 254 },
		"no table":                          func(n *NodeNumbers) { n.Inbound.Table = 0 },
		"a table of two uses":               func(n *NodeNumbers) { n.Inbound.Table = n.Outbound.Table },
		"a table of two uses, proxy":        func(n *NodeNumbers) { n.Delivered.Table = n.Transparent.Table },
		"a priority of two uses":            func(n *NodeNumbers) { n.Inbound.Priority = n.Outbound.Priority },
		"a priority before that of tunnels": func(n *NodeNumbers) { n.Delivered.Priority = n.DirectPriority },
		"no priority of tunnels":            func(n *NodeNumbers) { n.DirectPriority = 0 },
		"an interface twice":                func(n *NodeNumbers) { n.InboundWire.Node = n.OutboundWire.Node },
		"an interface of the proxy twice":   func(n *NodeNumbers) { n.InboundWire.Proxy = n.OutboundWire.Proxy },
		"a name that begins another":        func(n *NodeNumbers) { n.InboundWire.Node = n.OutboundWire.Node + "x" },
		"a VNI of 17 bits":                  func(n *NodeNumbers) { n.InboundWire.VNI = 1 << 16 },
		"a VNI twice":                       func(n *NodeNumbers) { n.InboundWire.VNI = n.OutboundWire.VNI },
		"no address of a family":            func(n *NodeNumbers) { n.InboundWire.NodeAddresses = n.InboundWire.NodeAddresses[:1] },
		"other subnets":                     func(n *NodeNumbers) { n.InboundWire.NodeAddresses[0] = netip.MustParsePrefix("192.0.2.1/30") },
		"one address at both ends":          func(n *NodeNumbers) { n.InboundWire.NodeAddresses[0] = n.InboundWire.ProxyAddresses[0] },
		"a subnet of two uses": func(n *NodeNumbers) {
			n.InboundWire.NodeAddresses, n.InboundWire.ProxyAddresses = n.OutboundWire.NodeAddresses, n.OutboundWire.ProxyAddresses
		},
		"a port twice":       func(n *NodeNumbers) { n.InboundPort = n.OutboundPort },
		"no port of tunnels": func(n *NodeNumbers) { n.UDPPort = 0 },
	} {
		numbers := IstioNodeNumbers()
		change(&numbers)
		if plan, err := NodePlan(nodeProxy(), numbers, dual(), "test-ambient"); !errors.Is(err, ErrNumbers) || plan != nil {
			t.Errorf("%s: NodePlan: %v, want ErrNumbers", name, err)
		}
		if plan, err := ProxyPlan(nodeProxy(), numbers, dual(), "test-ambient"); !errors.Is(err, ErrNumbers) || plan != nil {
			t.Errorf("%s: ProxyPlan: %v, want ErrNumbers", name, err)
		}
	}
	long := IstioNodeNumbers()
	long.OutboundWire.Proxy = "a-name-of-15-by"
	proxy := nodeProxy()
	if _, err := NodePlan(proxy, long, dual(), "test-ambient"); err != nil {
		t.Errorf("a name of 15 bytes: %v", err)
	}
	proxy.Generation = 1
	if _, err := NodePlan(proxy, long, dual(), "test-ambient"); !errors.Is(err, interception.ErrPlan) {
		t.Errorf("a name that the generation makes too long: %v, want ErrPlan", err)
	}
}

// TestNodePlansWriteTheirBitsAlone looks at each mark that a plan writes: the bits of other
// programs stay as they are. Istio's rules overwrote the whole mark of what the node sends to
// pods.
func TestNodePlansWriteTheirBitsAlone(t *testing.T) {
	t.Parallel()
	n := IstioNodeNumbers()
	own := n.Outbound.Mark.Mask | n.Inbound.Mark.Mask | n.Replies.Mark.Mask | n.Opened.Mask | n.Odd.Mask | n.Delivered.Mark.Mask | n.Transparent.Mark.Mask
	for name, plan := range nodePlans(t) {
		written := 0
		for _, rule := range plan.Rules() {
			var mark interception.MarkBits
			switch action := rule.Action.(type) {
			case interception.SetMark:
				mark = action.Mark
			case interception.SetConnMark:
				mark = action.Mark
			case interception.TProxyTo:
				mark = action.Mark
			case interception.SaveMark, interception.RestoreMark:
				t.Errorf("%s: %s copies a mark, whose bits this test does not know", name, rule.ID)
			default:
				continue
			}
			written++
			if foreign := mark.Mask &^ own; foreign != 0 || mark.IsEmpty() {
				t.Errorf("%s: %s writes %s, of which %#x is not the mesh's", name, rule.ID, mark, uint32(foreign))
			}
		}
		if written == 0 {
			t.Errorf("%s writes no mark", name)
		}
	}
}

// TestNodePlansHaveNoDeadTables looks for a rule to each table that has a route, and for a route in
// each table that a rule leads to.
func TestNodePlansHaveNoDeadTables(t *testing.T) {
	t.Parallel()
	type table struct {
		family interception.Family
		number interception.RoutingTable
	}
	for name, plan := range nodePlans(t) {
		routed, ruled := map[table]bool{}, map[table]bool{}
		for route := range interception.ObjectsOf[interception.Route](plan) {
			routed[table{interception.FamilyOf(route.Destination.Addr()), route.Table}] = true
		}
		for rule := range interception.ObjectsOf[interception.PolicyRule](plan) {
			if rule.Table != 0 { // the main table
				ruled[table{rule.Family, rule.Table}] = true
			}
		}
		if diff := cmp.Diff(routed, ruled); diff != "" {
			t.Errorf("%s (-tables with routes +with rules):\n%s", name, diff)
		}
	}
}
