// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

// The owners of the plans of [Cases].
const (
	caseOwner  interception.Owner = "mesh-conform"
	otherOwner interception.Owner = "mesh-other"
)

// Case is a plan to test a dataplane with, and packets.
type Case struct {
	// Name names the case.
	Name string
	// Plan is the plan.
	Plan *interception.Plan
	// Pod is the pod that the plan is for.
	Pod PodOptions
	// Packets are sent through the plan, each in the pod of its case: the first ones of their
	// connections.
	Packets []trace.Packet
}

// Cases returns plans that together have everything that sidecars need, in REDIRECT and TPROXY
// mode, with packets of every kind that they distinguish.
func Cases(t testing.TB) []Case {
	t.Helper()
	var cases []Case
	for _, pod := range casePods() {
		plan, err := pod.plan()
		if err != nil {
			t.Fatalf("case %s: %v", pod.name, err)
		}
		c := newCase(t, pod.name, plan)
		if pod.machine {
			c.Pod.MachineLink = "vm0"
			c.Packets = append(c.Packets, parsed(t, machinePackets())...)
		}
		cases = append(cases, c)
	}
	for _, built := range []struct {
		name  string
		build func(*interception.Builder)
	}{{"objects", everyObject}, {"negations", negations}} {
		plan, err := interception.Build(caseOwner, built.build)
		if err != nil {
			t.Fatalf("case %s: %v", built.name, err)
		}
		cases = append(cases, newCase(t, built.name, plan))
	}
	return cases
}

func newCase(t testing.TB, name string, plan *interception.Plan) Case {
	t.Helper()
	return Case{Name: name, Plan: plan, Pod: istioPod(), Packets: parsed(t, casePackets())}
}

// istioPod is a pod with an application and with Istio's proxy.
func istioPod() PodOptions {
	return PodOptions{
		Addresses:  []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")},
		Ports:      []uint16{8080},
		ProxyPorts: []uint16{15001, 15006, 15053}, ProxyUID: 1337, ProxyGID: 1337,
	}
}

func parsed(t testing.TB, lines []string) []trace.Packet {
	t.Helper()
	var packets []trace.Packet
	for _, line := range lines {
		packet, err := trace.ParsePacket(line)
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, packet)
	}
	return packets
}

// casePod describes a case's pod in the terms of Istio.
type casePod struct {
	name        string
	annotations map[string]string
	env         map[string]string
	ipv4Only    bool
	spare       bool
	machine     bool // at the link vm0
}

func (p casePod) plan() (*interception.Plan, error) {
	redirect, _, err := sidecar.Istio().Parse(interception.Pod{
		Namespace: "shop", Name: "cart-0", Annotations: p.annotations,
		Containers: []interception.Container{{Name: "istio-proxy", Env: p.env}},
	})
	if err != nil {
		return nil, err
	}
	if p.spare {
		redirect.Existing = sidecar.ExistingSpare
	}
	return sidecar.Plan(redirect, interception.Facts{IPv6: !p.ipv4Only}, caseOwner)
}

func casePods() []casePod {
	const traffic = "traffic.sidecar.istio.io/"
	type words = map[string]string
	alike := "198.51.100.8/29,2001:db8:9::8/125"
	for i := range 70 {
		alike += fmt.Sprintf(",10.244.%d.8/29,fd00:10:244:%x::8/125", 3*i, 3*i)
	}
	many := "198.51.100.9/32,2001:db8:9::9/128"
	for i := range 40 {
		many += fmt.Sprintf(",10.%d.0.0/16,fd%02x::/16", 2*i, 2*i)
	}
	return []casePod{
		{name: "redirect"},
		{name: "ipv4-only", ipv4Only: true},
		{name: "ports", annotations: words{
			traffic + "includeInboundPorts": "8080,8443", traffic + "excludeOutboundPorts": "443,9090", traffic + "includeOutboundPorts": "5432",
		}},
		{name: "networks", annotations: words{
			traffic + "includeOutboundIPRanges": "192.0.2.0/24,2001:db8::/32", traffic + "excludeOutboundIPRanges": "192.0.2.128/25",
		}},
		{name: "many-networks", annotations: words{traffic + "excludeOutboundIPRanges": many}},
		{name: "networks-of-one-length", annotations: words{traffic + "excludeOutboundIPRanges": alike}},
		{name: "nothing", annotations: words{traffic + "includeOutboundIPRanges": "", traffic + "includeInboundPorts": ""}},
		{name: "interfaces", annotations: words{traffic + "excludeInterfaces": "net1,net2", traffic + "kubevirtInterfaces": "vm0"}, machine: true},
		{name: "groups", env: words{"ISTIO_OUTBOUND_OWNER_GROUPS": "1000,2000"}},
		{name: "dns", env: words{"ISTIO_META_DNS_CAPTURE": "true"}},
		{name: "invalid", env: words{"INVALID_DROP": "true"}, spare: true},
		{name: "tproxy", annotations: words{"sidecar.istio.io/interceptionMode": "TPROXY"}},
		{name: "tproxy-rerouted", machine: true, annotations: words{
			"sidecar.istio.io/interceptionMode": "TPROXY", "istio.io/reroute-virtual-interfaces": "vm0",
			traffic + "includeOutboundIPRanges": "192.0.2.0/24,2001:db8::/32",
		}},
		{name: "tproxy-excluded", machine: true, annotations: words{
			"sidecar.istio.io/interceptionMode": "TPROXY", traffic + "excludeInterfaces": "vm0",
		}},
		{
			name: "tproxy-dns", spare: true,
			annotations: words{"sidecar.istio.io/interceptionMode": "TPROXY", traffic + "includeInboundPorts": "8080"},
			env:         words{"ISTIO_META_DNS_CAPTURE": "true"},
		},
	}
}

func casePackets() []string {
	return []string{
		"tcp uid 1000 gid 1000 > 192.0.2.1:443",
		"tcp uid 1000 gid 1000 > 192.0.2.200:80",
		"tcp uid 1000 gid 1000 > 198.51.100.9:80",
		"tcp uid 1000 gid 1000 > [2001:db8::1]:443",
		"tcp uid 1000 gid 1000 > [2001:db8:9::9]:5432",
		"tcp uid 1001 gid 3000 > 192.0.2.1:9090",
		"tcp uid 1337 gid 1337 > 192.0.2.1:443",
		"tcp uid 1337 gid 1337 > [2001:db8::1]:443",
		"tcp uid 1337 gid 1337 > 10.244.0.2:8080",
		"tcp uid 1000 gid 1000 > 10.244.0.2:8080",
		"tcp uid 1000 gid 1000 > 127.0.0.1:8080",
		"tcp uid 1000 gid 1000 > [::1]:8080",
		"udp uid 1000 gid 1000 > 192.0.2.53:53",
		"udp uid 1000 gid 1000 > [2001:db8::53]:53",
		"udp uid 1337 gid 1337 > 192.0.2.53:53",
		"udp uid 1000 gid 1000 > 192.0.2.53:123",
		"tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8080",
		"tcp in eth0 [2001:db8::9]:40000 > [fd00:10:244::2]:8080",
		"tcp in eth0 192.0.2.9:40000 > 10.244.0.2:15020",
		"udp in eth0 192.0.2.9:40000 > 10.244.0.2:8080",
	}
}

// machinePackets returns the packets of a machine at vm0.
func machinePackets() []string {
	return []string{
		"tcp in vm0 10.0.2.2:40000 > 192.0.2.7:443",
		"tcp in vm0 10.0.2.2:40000 > 198.51.100.9:80",
		"tcp in vm0 10.0.2.2:40000 > 10.244.0.2:8080",
		"tcp in vm0 [fd10:0:2::2]:40000 > [2001:db8:7::7]:443",
		"tcp in vm0 [fd10:0:2::2]:40000 > [2600:1f00::9]:80",
		"udp in vm0 10.0.2.2:40000 > 198.51.100.9:123",
		"udp in vm0 [fd10:0:2::2]:40000 > [2600:1f00::9]:53",
	}
}

// sysctls are the parameters that cases set.
func sysctls() []string { return []string{"ipv4/ip_default_ttl", "ipv4/conf/all/route_localnet"} }

// everyObject adds an object of each kind that every kernel supports, and rules in every table
// whose order matters.
func everyObject(b *interception.Builder) {
	type match = interception.Match
	b.Address(interception.Address{ID: "address.v4", Device: "lo", Prefix: netip.MustParsePrefix("10.77.0.1/32"), Why: "an address"})
	b.Address(interception.Address{ID: "address.v6", Device: "lo", Prefix: netip.MustParsePrefix("fd77::1/128"), Why: "an address"})
	b.Sysctl(interception.Sysctl{ID: "sysctl.ttl", Key: sysctls()[0], Value: 65, Why: "a sysctl"})
	b.Sysctl(interception.Sysctl{ID: "sysctl.localnet", Key: sysctls()[1], Value: 1, Why: "a sysctl"})
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		id := interception.RuleID("." + family.String())
		all := interception.AllPrefixes().Of(family).Prefixes()[0]
		b.Route(interception.Route{ID: "route" + id, Type: interception.RouteLocal, Destination: all, Device: "lo", Table: 177, Why: "a route"})
		b.PolicyRule(interception.PolicyRule{
			ID: "rule" + id, Family: family, Mark: interception.MarkBits{Value: 0x70, Mask: 0xf0}, Table: 177, Priority: 21000, Why: "a policy rule",
		})
	}
	for i, selected := range []interception.PolicyRule{
		{Family: interception.IPv4, Source: netip.MustParsePrefix("192.0.2.0/25"), Mark: interception.WholeMark(0x790)},
		{Family: interception.IPv6, Destination: netip.MustParsePrefix("2001:db8::7/128"), Table: 177},
		{Family: interception.IPv4, In: "absent0", Table: 255},
	} {
		selected.ID, selected.Why = interception.RuleID(fmt.Sprintf("rule.selected.%d", i)), "a policy rule"
		selected.Priority = uint32(21010 + i)
		b.PolicyRule(selected)
	}
	set4 := b.Set("some-v4", interception.Prefixes(netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("198.51.100.9/32")), "a set")
	set6 := b.Set("some-v6", interception.Prefixes(netip.MustParsePrefix("2001:db8::/48"), netip.MustParsePrefix("fd78::/16")), "a set")
	raw := b.Raw("early")
	raw.Entry(interception.Output, match{}, "an entry")
	raw.Do("raw.untracked", match{L4: interception.UDP().To(interception.Ports(4711))}, interception.NoTrack{}, "a rule")
	mark := b.Mangle("mark")
	mark.Entry(interception.Postrouting, match{L4: interception.TCP()}, "an entry")
	mark.Do("mangle.mark", match{UID: interception.Is(interception.UIDs(1337))},
		interception.SetConnMark{Mark: interception.MarkBits{Value: 1, Mask: 0xf}}, "a rule")
	nat := b.NAT("output")
	nat.EntryAt(interception.Output, -10, match{L4: interception.TCP()}, "an entry before others")
	nat.Do("nat.proxy", match{GID: interception.Is(interception.GIDs(1337))}, interception.Return{}, "a rule")
	nat.Do("nat.v4", match{DstSet: interception.Is(set4), L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "a rule")
	nat.Do("nat.v6", match{DstSet: interception.Is(set6), L4: interception.TCP()}, interception.RedirectTo{Port: 15006}, "a rule")
	filter := b.Filter("input")
	filter.Entry(interception.Input, match{}, "an entry")
	called := b.Filter("called")
	filter.Call("filter.jump", match{L4: interception.TCP().To(interception.Ports(8080, 8081, 9000))}, called, "a jump")
	called.Do("filter.return", match{Src: interception.Is(interception.Prefixes(netip.MustParsePrefix("192.0.2.0/24")))},
		interception.Return{}, "a rule")
	called.Do("filter.reject", match{L4: interception.TCP().To(interception.Ports(8080))}, interception.Reject{}, "a rule")
	called.Do("filter.drop", match{L4: interception.TCP()}, interception.Drop{}, "a rule")
}

// negations adds negated lists, for which a kernel may need several rules.
func negations(b *interception.Builder) {
	list := interception.Prefixes(netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("198.51.100.9/32"))
	set := b.Set("some-v4", list, "a set")
	nat := b.NAT("output")
	nat.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "an entry")
	nat.Do("nat.not-set", interception.Match{DstSet: interception.Not(set), L4: interception.TCP()}, interception.Return{}, "a rule")
	nat.Do("nat.not-list", interception.Match{Out: interception.Not(interception.Interfaces("lo", "net1*"))}, interception.Return{}, "a rule")
	nat.Do("nat.rest", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "a rule")
}
