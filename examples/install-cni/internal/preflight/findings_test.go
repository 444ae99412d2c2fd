// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight"
)

// config is a file with one plugin before istio-cni.
func config(name, plugin string) preflight.Config {
	return preflight.Config{Name: name, Text: []byte(`{"name":"pods","plugins":[` + plugin + `,{"type":"istio-cni"}]}`)}
}

// codes returns those of the findings, and tests that each says what was seen and what to do.
func codes(t *testing.T, v preflight.View) (all []preflight.Code) {
	t.Helper()
	for _, f := range preflight.Findings(v, ambient.IstioNumbers()) {
		if len(f.Seen) < 20 || len(f.Do) < 20 {
			t.Errorf("the finding says too little: %+v", f)
		}
		all = append(all, f.Code)
	}
	return all
}

// view is a node, and what is found there.
type view struct {
	preflight.View
	want []preflight.Code
}

// check tests what is found on each node, beside nodes that differ in one thing and are fine.
func check(t *testing.T, views map[string]view) {
	t.Helper()
	for name, test := range views {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, codes(t, test.View)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func list(codes ...preflight.Code) []preflight.Code { return codes }

// TestFindings has nodes without findings, and what no complaint is about.
func TestFindings(t *testing.T) {
	t.Parallel()
	check(t, map[string]view{
		"nothing":       {preflight.View{}, nil},
		"a bridge":      {preflight.View{Configs: []preflight.Config{config("10-bridge.conflist", `{"type":"bridge"}`)}, EarlyDemux: true}, nil},
		"no privileges": {preflight.View{Unknown: []string{"policy rules: operation not permitted"}}, list(preflight.Unknown)},
		"no JSON":       {preflight.View{Configs: []preflight.Config{{Name: "10-x.conflist", Text: []byte("{")}}}, nil},
	})
}

// TestSettingsOfCiliumAreNamed finds a configuration that Cilium has renamed, and its datapath
// (docs/ambient-complaints.md, E7). For its policies see TestPoliciesThatBlockTheMeshAreNamed.
func TestSettingsOfCiliumAreNamed(t *testing.T) {
	t.Parallel()
	cilium := config("05-cilium.conflist", `{"type":"cilium-cni"}`)
	check(t, map[string]view{
		"Cilium, exclusive": {preflight.View{Configs: []preflight.Config{cilium, {Name: "10-aws.conflist.cilium_bak"}}}, list(preflight.CiliumExclusive)},
		"Cilium, chained":   {preflight.View{Configs: []preflight.Config{cilium}}, nil},
		"another's backup":  {preflight.View{Configs: []preflight.Config{{Name: "10-aws.conflist.cilium_bak"}}}, nil},
		"Cilium's datapath": {preflight.View{Links: []preflight.Link{{Name: "cilium_host"}}}, list(preflight.CiliumDatapath)},
	})
}

// TestDatapathsThatBypassTheHostAreNamed finds Calico's eBPF and Terway's links (E8).
func TestDatapathsThatBypassTheHostAreNamed(t *testing.T) {
	t.Parallel()
	check(t, map[string]view{
		"Calico's eBPF, by a link":  {preflight.View{Links: []preflight.Link{{Name: "bpfin.cali"}}}, list(preflight.CalicoEBPF)},
		"Calico's eBPF, by program": {preflight.View{Links: []preflight.Link{{Name: "eth0", Programs: []string{"cali_tc_preambl"}}}}, list(preflight.CalicoEBPF)},
		"OVN-Kubernetes":            {preflight.View{Links: []preflight.Link{{Name: "ovn-k8s-mp0", Kind: "openvswitch"}}}, list(preflight.OVNGateway)},
		"Calico with iptables":      {preflight.View{Links: []preflight.Link{{Name: "cali12345", Programs: []string{"other"}}, {Name: "tunl0"}}}, nil},
		"Terway": {
			preflight.View{Configs: []preflight.Config{config("10-terway.conflist", `{"type":"terway","eniip_virtual_type":"datapathv2"}`)}},
			list(preflight.TerwayDatapath),
		},
		"Terway alone": {
			preflight.View{Configs: []preflight.Config{{Name: "10-terway.conf", Text: []byte(`{"type":"terway","eniip_virtual_type":"IPVlan"}`)}}},
			list(preflight.TerwayDatapath),
		},
		"Terway by veth": {preflight.View{Configs: []preflight.Config{config("10-terway.conflist", `{"type":"terway","eniip_virtual_type":"Veth"}`)}}, nil},
	})
}

// TestSecurityGroupsForPodsAreNamed finds the policy rules of branch interfaces in AWS (E9).
func TestSecurityGroupsForPodsAreNamed(t *testing.T) {
	t.Parallel()
	check(t, map[string]view{
		"branch ENI": {
			preflight.View{Rules: []preflight.Rule{{Priority: 10, From: "vlan1a2b3c", Table: 101}}, EarlyDemux: true}, list(preflight.BranchENI),
		},
		"the agent's own rule": {
			preflight.View{Rules: []preflight.Rule{{Priority: 9, From: "vlan1a2b3c", Table: 255}, {Priority: 10, From: "vlan1a2b3c", Table: 101}, {Priority: 512, Table: 101}}}, nil,
		},
		"rules of the kernel": {preflight.View{Rules: []preflight.Rule{{Table: 255}, {Priority: 32766, Table: 254}}}, nil},
	})
}

// TestMissingFeaturesOfTheKernelAreNamed lists what each dataplane lacks (E10).
func TestMissingFeaturesOfTheKernelAreNamed(t *testing.T) {
	t.Parallel()
	check(t, map[string]view{
		"an old kernel": {preflight.View{Missing: []string{"nftables: no socket expression", "iptables: no match mark"}}, list(preflight.KernelFeatures)},
	})
}

// TestForeignUsersOfOurNumbersAreNamed finds programs of the host that use what the mesh needs
// (E20).
func TestForeignUsersOfOurNumbersAreNamed(t *testing.T) {
	t.Parallel()
	check(t, map[string]view{
		"source-based routing": {preflight.View{Configs: []preflight.Config{config("10-x.conflist", `{"type":"sbr"}`)}}, list(preflight.SourceRouting)},
		"a foreign priority":   {preflight.View{Rules: []preflight.Rule{{Priority: 512, Table: 7}, {Priority: 512, Table: 8}}}, list(preflight.ForeignPriority)},
		"the probes' address": {
			preflight.View{Links: []preflight.Link{{Name: "lo", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.7.127")}}}},
			list(preflight.ForeignAddress),
		},
	})
}

// TestBranchENI has a finding only where the kernel's early demultiplexing is on.
func TestBranchENI(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		v := preflight.View{Rules: []preflight.Rule{{Priority: 10, From: "vlan1a2b3c", Table: 101}}, EarlyDemux: on}
		found := preflight.Findings(v, ambient.IstioNumbers())
		if (len(found) == 1) != on || on && !strings.Contains(found[0].Do, "DISABLE_TCP_EARLY_DEMUX") {
			t.Errorf("early demultiplexing %t: %+v", on, found)
		}
	}
}

// TestPoliciesThatBlockTheMeshAreNamed has NetworkPolicies that block the mesh (E19), or Cilium's
// probes (E7), and those that do not.
func TestPoliciesThatBlockTheMeshAreNamed(t *testing.T) {
	t.Parallel()
	const client = `[{"podSelector":{"matchLabels":{"app":"client"}}}]`
	for name, test := range map[string]struct {
		spec   string
		cilium bool
		want   []preflight.Code
	}{
		"a port of the application": {`{"ingress":[{"from":` + client + `,"ports":[{"port":8080}]}]}`, false, []preflight.Code{preflight.PolicyTunnel}},
		"a named port":              {`{"ingress":[{"from":` + client + `,"ports":[{"port":"http"}]}]}`, false, []preflight.Code{preflight.PolicyTunnel}},
		"the tunnel's by UDP":       {`{"ingress":[{"ports":[{"port":15008,"protocol":"UDP"}]}]}`, false, []preflight.Code{preflight.PolicyTunnel}},
		"the tunnel's port":         {`{"ingress":[{"from":` + client + `,"ports":[{"port":8080},{"port":15008,"protocol":"TCP"}]}]}`, false, nil},
		"a range":                   {`{"ingress":[{"from":` + client + `,"ports":[{"port":15000,"endPort":15010}]}]}`, false, nil},
		"all TCP ports":             {`{"ingress":[{"from":` + client + `,"ports":[{"protocol":"TCP"}]}]}`, false, nil},
		"no ports":                  {`{"ingress":[{"from":` + client + `}]}`, false, nil},
		"the tunnel's port for all": {`{"ingress":[{"from":` + client + `,"ports":[{"port":8080}]},{"ports":[{"port":15008}]}]}`, false, nil},
		"nothing":                   {`{}`, false, nil},
		"egress":                    {`{"policyTypes":["Egress"],"egress":[{"ports":[{"port":443}]}]}`, true, []preflight.Code{preflight.PolicyTunnel}},
		"nothing, by Cilium":        {`{"policyTypes":["Ingress"]}`, true, []preflight.Code{preflight.PolicyProbes}},
		"a pod, by Cilium":          {`{"ingress":[{"from":` + client + `}]}`, true, []preflight.Code{preflight.PolicyProbes}},
		"probes, by Cilium":         {`{"ingress":[{"from":[{"ipBlock":{"cidr":"169.254.7.127/32"}}]}]}`, true, nil},
		"all, by Cilium":            {`{"ingress":[{}]}`, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, err := preflight.ParsePolicies([]byte(`{"kind":"List","items":[{"metadata":{"namespace":"shop","name":"allow"},"spec":` + test.spec + `}]}`))
			if err != nil || len(all) != 1 {
				t.Fatalf("%d policies, %v", len(all), err)
			}
			v := preflight.View{Policies: all}
			if test.cilium {
				v.Configs = []preflight.Config{config("05-cilium.conflist", `{"type":"cilium-cni"}`)}
			}
			if diff := cmp.Diff(test.want, codes(t, v)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, text := range []string{"", "{}", `{"kind":"Pod"}`, `{"kind":"List","items":[{"spec":{"ingress":[{"from":[{"ipBlock":{"cidr":"all"}}]}]}}]}`} {
		if _, err := preflight.ParsePolicies([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
