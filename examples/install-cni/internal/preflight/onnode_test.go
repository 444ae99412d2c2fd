// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/collision"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight"
	"github.com/meshcni/meshcni/interception"
)

// checkOnNode tests what keeps the node's own namespace from capturing pods.
func checkOnNode(t *testing.T, way ambient.Way, views map[string]view) {
	t.Helper()
	for name, test := range views {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := preflight.NodeFindings(test.View, ambient.IstioNodeNumbers(), way)
			var got []preflight.Code
			for _, f := range found {
				if len(f.Seen) < 20 || len(f.Do) < 20 {
					t.Errorf("the finding says too little: %+v", f)
				}
				got = append(got, f.Code)
			}
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestDatapathsThatBypassTheNodeAreNamed has the networks of E7, E8 and E9 that take packets of
// pods past the host's rules, where these rules capture the pods.
func TestDatapathsThatBypassTheNodeAreNamed(t *testing.T) {
	t.Parallel()
	of := func(plugin string) preflight.View {
		return preflight.View{Configs: []preflight.Config{config("10-x.conflist", plugin)}}
	}
	checkOnNode(t, ambient.WayVeth, map[string]view{
		"nothing":           {preflight.View{}, nil},
		"a plugin by veth":  {of(`{"type":"ptp"}`), nil},
		"Cilium's datapath": {preflight.View{Links: []preflight.Link{{Name: "cilium_host"}}}, list(preflight.CiliumDatapath)},
		"Cilium, exclusive": {
			preflight.View{Configs: []preflight.Config{{Name: "10-aws.conflist.cilium_bak"}}, Links: []preflight.Link{{Name: "cilium_host"}}},
			list(preflight.CiliumExclusive, preflight.CiliumDatapath),
		},
		"Calico's eBPF": {preflight.View{Links: []preflight.Link{{Name: "bpfin.cali"}}}, list(preflight.CalicoEBPF)},
		"Calico":        {preflight.View{Links: []preflight.Link{{Name: "cali12345", Kind: "veth"}}}, nil},
		"Calico beside iptables": {
			preflight.View{ByIPTables: true, Links: []preflight.Link{{Name: "eth0"}, {Name: "cali12345", Kind: "veth"}}}, list(preflight.CalicoOrder),
		},
		"Calico's chains beside iptables": {
			preflight.View{ByIPTables: true, Standing: collision.Standing{Chains: []interception.ForeignChain{{Table: "ip filter", Name: "cali-FORWARD"}}}},
			list(preflight.CalicoOrder),
		},
		"Calico's eBPF beside iptables": {
			preflight.View{ByIPTables: true, Links: []preflight.Link{{Name: "cali12345"}, {Name: "bpfin.cali"}}}, list(preflight.CalicoEBPF),
		},
		"iptables":             {preflight.View{ByIPTables: true, Links: []preflight.Link{{Name: "veth1", Kind: "veth"}}}, nil},
		"Terway":               {of(`{"type":"terway","eniip_virtual_type":"IPVlan"}`), list(preflight.TerwayDatapath)},
		"netkit":               {preflight.View{Links: []preflight.Link{{Name: "lxc1", Kind: "netkit"}}}, list(preflight.PodLinks)},
		"ipvlan":               {of(`{"type":"ipvlan"}`), list(preflight.PodLinks)},
		"macvlan":              {of(`{"type":"macvlan"}`), list(preflight.PodLinks)},
		"SR-IOV":               {of(`{"type":"sriov"}`), list(preflight.PodLinks)},
		"a device of the host": {of(`{"type":"host-device"}`), list(preflight.PodLinks)},
		"vlan":                 {of(`{"type":"vlan"}`), list(preflight.PodLinks)},
		"Open vSwitch": {
			preflight.View{Links: []preflight.Link{{Name: "ovs-system", Kind: "openvswitch"}, {Name: "antrea-gw0", Kind: "openvswitch"}}}, list(preflight.PodLinks),
		},
		"a bridge": {
			preflight.View{Links: []preflight.Link{{Name: "cni0", Kind: "bridge"}, {Name: "veth1", Kind: "veth", Bridge: "cni0"}}}, list(preflight.BridgedPods),
		},
		"kube-proxy's IPVS": {preflight.View{Links: []preflight.Link{{Name: "kube-ipvs0", Kind: "dummy"}}}, list(preflight.LocalServices)},
		"an empty bridge":   {preflight.View{Links: []preflight.Link{{Name: "docker0", Kind: "bridge"}, {Name: "eth0", Kind: "vlan", Bridge: "docker0"}}}, nil},
		"branch ENI":        {preflight.View{Rules: []preflight.Rule{{Priority: 10, From: "vlan1a2b3c", Table: 101}}}, list(preflight.BranchENI)},
		"a later rule":      {preflight.View{Rules: []preflight.Rule{{Priority: 1536, From: "vlan1a2b3c", Table: 7}}}, nil},
		"an old kernel":     {preflight.View{Missing: []string{"the kernel has no VXLAN tunnels (module vxlan)"}}, list(preflight.KernelFeatures)},
		"no privileges":     {preflight.View{Unknown: []string{"the host's network: operation not permitted"}}, list(preflight.Unknown)},
		"probes' address":   {preflight.View{Links: []preflight.Link{{Name: "lo", Addresses: []netip.Addr{netip.MustParseAddr("169.254.7.127")}}}}, nil},
		"the plugin sbr":    {of(`{"type":"sbr"}`), nil},
		"early demux only":  {preflight.View{EarlyDemux: true}, nil},
	})
}

// TestForeignUsersOfTheNodesNumbersAreNamed has what other programs use on the host (E20).
func TestForeignUsersOfTheNodesNumbersAreNamed(t *testing.T) {
	t.Parallel()
	standing := func(s collision.Standing) preflight.View { return preflight.View{Standing: s} }
	rule := func(r interception.PolicyRule) preflight.View {
		r.Family = interception.IPv4
		return standing(collision.Standing{PolicyRules: []interception.PolicyRule{r}})
	}
	marked := rule(interception.PolicyRule{Priority: 9, Table: 2004, Mark: interception.MarkBits{Value: 0x200, Mask: 0xf00}})
	port := standing(collision.Standing{UDPPorts: []interception.Port{6081}})
	checkOnNode(t, ambient.WayVeth, map[string]view{
		"the kernel's rules": {standing(collision.Standing{PolicyRules: []interception.PolicyRule{
			{Family: interception.IPv4, Table: 255}, {Family: interception.IPv4, Priority: 32766, Table: 254}, {Family: interception.IPv4, Priority: 32767, Table: 253},
		}}), nil},
		"a rule before": {rule(interception.PolicyRule{Priority: 50, Table: 7}), list(preflight.ForeignPriority)},
		"a rule after":  {rule(interception.PolicyRule{Priority: 1536, Table: 7}), nil},
		"pods of a second interface": {standing(collision.Standing{PolicyRules: []interception.PolicyRule{
			{Family: interception.IPv4, Priority: 1024, Mark: interception.MarkBits{Value: 0x80, Mask: 0x80}, Table: 254},
			{Family: interception.IPv4, Priority: 1536, Source: netip.MustParsePrefix("10.0.3.7/32"), Table: 2},
		}}), list(preflight.SecondaryENI)},
		"pods of the first interface": {standing(collision.Standing{PolicyRules: []interception.PolicyRule{
			{Family: interception.IPv4, Priority: 1024, Mark: interception.MarkBits{Value: 0x80, Mask: 0x80}, Table: 254},
		}}), nil},
		"a table":            {standing(collision.Standing{Routes: []interception.Route{{Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "eth0", Table: 102}}}), list(preflight.ForeignNumbers)},
		"a subnet":           {standing(collision.Standing{Addresses: []netip.Prefix{netip.MustParsePrefix("192.168.126.9/24")}}), list(preflight.ForeignNumbers)},
		"a link":             {standing(collision.Standing{Links: []interception.Interface{"eth0", "istioin"}}), list(preflight.ForeignNumbers)},
		"a port without use": {port, nil},
	})
	checkOnNode(t, ambient.WayVXLAN, map[string]view{"a port": {port, list(preflight.ForeignNumbers)}})
	found, err := preflight.NodeFindings(marked, ambient.IstioNodeNumbers(), ambient.WayVeth)
	if err != nil || len(found) == 0 || found[0].Code != preflight.ForeignNumbers {
		t.Errorf("a mark: %+v, %v", found, err)
	}
}

// TestSourceChecksAreNamed has rules that drop packets whose source another interface leads to.
func TestSourceChecksAreNamed(t *testing.T) {
	t.Parallel()
	chain := func(hook string, match interception.Match, text string) preflight.View {
		return preflight.View{Standing: collision.Standing{Chains: []interception.ForeignChain{{
			Table: "inet firewalld", Name: "filter_PREROUTING", Hook: hook, Rules: []interception.Rule{{Match: match, Action: interception.Opaque{Text: text}}},
		}}}}
	}
	in := func(names ...interception.Interface) interception.Match {
		return interception.Match{In: interception.Is(interception.Interfaces(names...))}
	}
	checkOnNode(t, ambient.WayVeth, map[string]view{
		"of all links":         {chain("prerouting", interception.Match{}, "fib saddr . mark . iif oif missing drop"), list(preflight.SourceCheck)},
		"of the wires":         {chain("prerouting", in("istio*"), "match rpfilter drop"), list(preflight.SourceCheck)},
		"of the pods' links":   {chain("prerouting", in("cali*"), "match rpfilter drop"), nil},
		"of all but the wires": {chain("prerouting", interception.Match{In: interception.Not(interception.Interfaces("istio*"))}, "match rpfilter drop"), nil},
		"another hook":         {chain("output", interception.Match{}, "fib daddr type local"), nil},
		"another rule":         {chain("prerouting", interception.Match{}, "ct helper"), nil},
	})
}
