// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

func mustPlan(t *testing.T, r Redirect, f interception.Facts) *interception.Plan {
	t.Helper()
	plan, err := Plan(r, f, "test-mesh")
	if err != nil {
		t.Fatalf("Plan: %v", err)
	}
	return plan
}

func ruleIDs(p *interception.Plan) string {
	var ids []string
	for _, rule := range p.Rules() {
		ids = append(ids, string(rule.ID))
	}
	return strings.Join(ids, " ")
}

func TestZeroRedirectCapturesNothing(t *testing.T) {
	t.Parallel()
	if plan := mustPlan(t, Redirect{}, interception.Facts{IPv6: true}); len(plan.Objects) > 0 {
		t.Errorf("the plan of the zero Redirect is\n%s", plan)
	}
}

func TestPlanWithoutIPv6NamesNoIPv6(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t, annotate(trafficPrefix+"excludeOutboundIPRanges", "10.0.0.0/8,fd00::/8"))
	plan := mustPlan(t, r, interception.Facts{})
	for _, rule := range plan.Rules() {
		if rule.Match.EffectiveFamily() == interception.IPv6 {
			t.Errorf("rule %s is about IPv6", rule.ID)
		}
	}
	for table := range plan.Tables() {
		for _, entry := range table.Entries {
			if entry.Match.Family != interception.IPv4 {
				t.Errorf("entry %s applies to %s, want v4 only", entry.ID, entry.Match.Family)
			}
		}
	}
}

func TestPlanLeavesOutWhatIsNotAsked(t *testing.T) {
	t.Parallel()
	onlyInbound := Redirect{Proxy: Proxy{InboundPort: 4143}, Inbound: Inbound{Include: interception.Ports(80)}}
	if got := ruleIDs(mustPlan(t, onlyInbound, interception.Facts{IPv6: true})); got != "inbound.capture" {
		t.Errorf("rules %q, want the inbound capture only", got)
	}
	onlyOutbound := Redirect{Proxy: Proxy{OutboundPort: 4140, UIDs: interception.UIDs(2102)}, Outbound: Outbound{Include: interception.AllPrefixes()}}
	if got := ruleIDs(mustPlan(t, onlyOutbound, interception.Facts{IPv6: true})); got != "outbound.local outbound.proxy.uid outbound.capture" {
		t.Errorf("rules %q, want those of outbound capture by user", got)
	}
}

// TestPlanNeverWidens has prefixes of one family only. The other family must get no rule.
func TestPlanNeverWidens(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t, annotate(trafficPrefix+"includeOutboundIPRanges", "10.0.0.0/8"), annotate(trafficPrefix+"excludeOutboundIPRanges", "10.1.0.0/16"))
	plan := mustPlan(t, r, interception.Facts{IPv6: true})
	for _, rule := range plan.Rules() {
		if strings.HasPrefix(string(rule.ID), "outbound.capture") || strings.HasPrefix(string(rule.ID), "outbound.exclude.prefixes") {
			if rule.Match.EffectiveFamily() != interception.IPv4 {
				t.Errorf("rule %s (%s) applies to %s", rule.ID, rule.Match, rule.Match.EffectiveFamily())
			}
		}
	}
}

func TestPlanUsesSetsForManyPrefixes(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, setThreshold - 1, setThreshold, 1000} {
		var prefixes []netip.Prefix
		for i := range n {
			prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 26))
		}
		r, _ := mustParse(t)
		r.Outbound.Exclude = interception.Prefixes(prefixes...)
		set, found := mustPlan(t, r, interception.Facts{}).Set("outbound-exclude-v4")
		if found != (n >= setThreshold) {
			t.Errorf("%d prefixes: a set is there: %t", n, found)
		}
		if found && set.Members.Len() != n {
			t.Errorf("the set of %d prefixes has %d", n, set.Members.Len())
		}
	}
}

func TestPlanWholeFamily(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t, annotate(trafficPrefix+"includeOutboundIPRanges", "0.0.0.0/0,fd00::/8"))
	plan := mustPlan(t, r, interception.Facts{IPv6: true})
	for _, rule := range plan.Rules() {
		if rule.ID == "outbound.capture.prefixes.v4" && rule.Match.String() != "v4 tcp" {
			t.Errorf("rule %s matches %q, want the whole family", rule.ID, rule.Match)
		}
	}
}

func TestContradictionsQuoteTheValue(t *testing.T) {
	t.Parallel()
	err := Redirect{Mode: 7, Existing: 9}.Validate()
	for _, want := range []string{"mode 7 is unknown", "Existing 9 is unknown"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate = %v, want %q", err, want)
		}
	}
}

func TestPlanRefusesContradictions(t *testing.T) {
	t.Parallel()
	everyUID := interception.RangesOf(interception.Range[interception.UID]{First: 0, Last: ^interception.UID(0)})
	everyGID := interception.RangesOf(interception.Range[interception.GID]{First: 0, Last: ^interception.GID(0)})
	for name, r := range map[string]Redirect{
		"unknown mode":           {Mode: 7},
		"no inbound port":        {Inbound: Inbound{Include: interception.AllPorts()}},
		"no outbound port":       {Proxy: Proxy{UIDs: interception.UIDs(1)}, Outbound: Outbound{Include: interception.AllPrefixes()}},
		"no identity":            {Proxy: Proxy{OutboundPort: 1}, Outbound: Outbound{Include: interception.AllPrefixes()}},
		"no identity for DNS":    {DNS: DNSCapture{Port: 1}},
		"unknown existing":       {Existing: 9},
		"many sources for lo":    {Proxy: Proxy{PassthroughSources: interception.Prefixes(netip.MustParsePrefix("2001:db8::/123"))}},
		"tproxy without marks":   {Mode: ModeTProxy},
		"one port for all":       {Proxy: Proxy{OutboundPort: 15001, InboundPort: 15001, TunnelPort: 15001}, DNS: DNSCapture{Port: 15001}},
		"DNS to the proxy":       {Proxy: Proxy{UIDs: interception.UIDs(1), OutboundPort: 15001}, DNS: DNSCapture{Port: 15001}},
		"no identity for ports":  {Proxy: Proxy{OutboundPort: 1}, Outbound: Outbound{IncludePorts: interception.Ports(1)}},
		"everybody is the proxy": {Proxy: Proxy{UIDs: everyUID, OutboundPort: 1}, Outbound: Outbound{Include: interception.AllPrefixes()}},
		"every group is":         {Proxy: Proxy{GIDs: everyGID, OutboundPort: 1}, Outbound: Outbound{IncludePorts: interception.Ports(1)}},
		"everybody asks for DNS": {Proxy: Proxy{UIDs: everyUID}, DNS: DNSCapture{Port: 1}},
	} {
		if plan, err := Plan(r, interception.Facts{}, "test-mesh"); !errors.Is(err, ErrRedirect) || plan != nil {
			t.Errorf("%s: Plan = %v, want ErrRedirect", name, err)
		}
	}
}

// TestPlanWritesWhatIsAsked enables one setting at a time and lists what it adds.
func TestPlanWritesWhatIsAsked(t *testing.T) {
	t.Parallel()
	base, _ := mustParse(t)
	plain := ruleIDs(mustPlan(t, base, interception.Facts{}))
	for _, tc := range []struct {
		name string
		edit func(*Redirect)
		more []string
		less []string
	}{
		{
			"DNS", func(r *Redirect) { r.DNS.Port = 15053 },
			[]string{
				"dns.zone.query.proxy.uid", "dns.zone.query.proxy.gid", "dns.zone.answer.proxy.uid", "dns.zone.answer.proxy.gid",
				"dns.zone.query", "dns.zone.answer", "dns.tcp", "dns.udp", "outbound.exclude.ports.udp",
			},
			nil,
		},
		{
			"DNS of some resolvers", func(r *Redirect) {
				r.DNS = DNSCapture{15053, interception.Prefixes(netip.MustParsePrefix("10.96.0.10/32"), netip.MustParsePrefix("fd00::a/128"))}
			},
			[]string{"dns.zone.query.v4", "dns.zone.answer.v4", "dns.tcp.v4", "dns.udp.v4"},
			[]string{"dns.tcp", "dns.udp", "dns.tcp.v6", "dns.zone.query", "dns.zone.query.v6"},
		},
		{
			"excluded interfaces", func(r *Redirect) { r.Interfaces.Exclude = interception.Interfaces("net1") },
			[]string{"inbound.exclude.interfaces", "outbound.exclude.interfaces"},
			nil,
		},
		{
			"rerouted interfaces", func(r *Redirect) { r.Interfaces.Reroute = interception.Interfaces("k6t-eth0") },
			[]string{"reroute.capture"},
			[]string{"reroute.else"},
		},
		{
			"rerouted interfaces, to some prefixes", func(r *Redirect) {
				r.Interfaces.Reroute = interception.Interfaces("k6t-eth0")
				r.Outbound.Include = interception.Prefixes(netip.MustParsePrefix("10.0.0.0/8"))
			},
			[]string{"reroute.capture.v4", "reroute.else"},
			nil,
		},
		{
			"everything is excluded that is included", func(r *Redirect) {
				r.Inbound.Exclude, r.Outbound.IncludePorts = interception.AllPorts(), interception.Ports(80)
				r.Outbound.Exclude = interception.AllPrefixes()
			},
			[]string{"outbound.exclude.prefixes.v4"},
			[]string{"inbound.exclude.ports", "inbound.capture", "outbound.capture.ports", "outbound.capture"},
		},
		{
			"included ports are excluded", func(r *Redirect) {
				r.Outbound.IncludePorts, r.Outbound.ExcludePorts = interception.Ports(80), interception.Ports(80, 81)
			},
			nil,
			[]string{"outbound.capture.ports"},
		},
		{
			"excluded prefixes are loopback", func(r *Redirect) { r.Outbound.Exclude = r.Outbound.Loopback },
			nil,
			[]string{"outbound.exclude.prefixes.v4"},
		},
		{"invalid packets", func(r *Redirect) { r.DropInvalid = true }, []string{"drop.invalid"}, []string{"tproxy.capture.v4"}},
		{"older connections", func(r *Redirect) { r.Existing = ExistingSpare }, []string{"inbound.spare", "outbound.spare"}, nil},
		{
			"groups", func(r *Redirect) {
				r.Outbound.Groups = OwnerGroups{Limited: true, Include: interception.GIDs(5), Exclude: interception.GIDs(6)}
			},
			[]string{"outbound.groups.include", "outbound.groups.exclude"},
			nil,
		},
		{
			"nobody's group", func(r *Redirect) { r.Outbound.Groups = OwnerGroups{Limited: true} },
			[]string{"outbound.groups.include"},
			[]string{"outbound.capture"},
		},
		{
			"TPROXY", func(r *Redirect) { r.Mode = ModeTProxy },
			[]string{
				"tproxy.save", "tproxy.own", "tproxy.tunnel", "tproxy.passthrough.v4", "tproxy.local", "tproxy.exclude.ports", "tproxy.divert",
				"tproxy.divert.mark", "tproxy.divert.accept", "tproxy.capture.v4", "tproxy.output.own", "tproxy.output.self.v4.uid",
				"tproxy.output.self.v4.gid", "tproxy.restore",
			},
			[]string{"inbound.capture", "inbound.tunnel", "tproxy.reroute", "tproxy.spare"},
		},
		{
			"TPROXY with everything", func(r *Redirect) {
				r.Mode, r.Existing, r.DropInvalid = ModeTProxy, ExistingSpare, true
				r.Interfaces = InterfacePolicy{Exclude: interception.Interfaces("net1"), Reroute: interception.Interfaces("k6t-eth0")}
			},
			[]string{"tproxy.exclude.interfaces", "drop.invalid", "tproxy.reroute", "tproxy.spare", "reroute.capture"},
			nil,
		},
		{
			"TPROXY without inbound", func(r *Redirect) { r.Mode, r.Inbound.Include = ModeTProxy, interception.PortSet{} },
			nil,
			[]string{"tproxy.save", "tproxy.restore", "inbound.capture"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := base
			tc.edit(&r)
			ids := strings.Fields(ruleIDs(mustPlan(t, r, interception.Facts{})))
			for _, id := range tc.more {
				if !slices.Contains(ids, id) {
					t.Errorf("rule %s is missing from %q", id, ids)
				}
				if slices.Contains(strings.Fields(plain), id) {
					t.Errorf("rule %s is there without being asked for", id)
				}
			}
			for _, id := range tc.less {
				if slices.Contains(ids, id) {
					t.Errorf("rule %s is not wanted in %q", id, ids)
				}
			}
		})
	}
}

// TestPlanAddresses has two passthrough sources that form one prefix, and a separate one.
func TestPlanAddresses(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t)
	r.Proxy.PassthroughSources = interception.Prefixes(netip.MustParsePrefix("::6/128"), netip.MustParsePrefix("::7/128"), netip.MustParsePrefix("::9/128"))
	var got []string
	for address := range interception.ObjectsOf[interception.Address](mustPlan(t, r, interception.Facts{IPv6: true})) {
		got = append(got, string(address.ID)+" "+address.Prefix.String())
	}
	want := "address.passthrough.v6 ::6/128, address.passthrough.v6.2 ::7/128, address.passthrough.v6.3 ::9/128"
	if strings.Join(got, ", ") != want {
		t.Errorf("addresses %s, want %s", strings.Join(got, ", "), want)
	}
}

func TestPlanObjects(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t, annotate("sidecar.istio.io/interceptionMode", "TPROXY"))
	text := mustPlan(t, r, interception.Facts{IPv6: true}).String()
	for _, line := range []string{
		"address ::6/128 dev lo  #",
		"route local 0.0.0.0/0 dev lo table 133  #",
		"route local ::/0 dev lo table 133  #",
		"policy rule v4 priority 1337 mark 0x539 table 133  #",
		"policy rule v6 priority 1337 mark 0x539 table 133  #",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is missing from\n%s", line, text)
		}
	}
	if text := mustPlan(t, r, interception.Facts{}).String(); strings.Contains(text, "v6") || strings.Contains(text, "::") {
		t.Errorf("without IPv6 the plan names it:\n%s", text)
	}
}

func TestPlanRefusesBadOwners(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t)
	for _, owner := range []interception.Owner{"", "redirect", "Istio-cni", "istio-cni-plugin", "a-", "-a", "a--b", "1-a", "a-b c", "a-é"} {
		if _, err := Plan(r, interception.Facts{}, owner); !errors.Is(err, interception.ErrName) || !errors.Is(err, interception.ErrPlan) {
			t.Errorf("owner %q: Plan = %v, want ErrName and ErrPlan", owner, err)
		}
	}
}

// TestFingerprint depends on what reaches the kernel, not on its provenance.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	base, _ := mustParse(t)
	written, _ := mustParse(t, annotate(trafficPrefix+"includeOutboundIPRanges", "*"))
	other, _ := mustParse(t, annotate(trafficPrefix+"excludeOutboundPorts", "1"))
	a, b, c := mustPlan(t, base, interception.Facts{}), mustPlan(t, written, interception.Facts{}), mustPlan(t, other, interception.Facts{})
	if a.Fingerprint() != b.Fingerprint() || a.String() == b.String() {
		t.Errorf("a default and the same value as annotation: fingerprints %s, %s; texts must differ by provenance only", a.Fingerprint(), b.Fingerprint())
	}
	if a.Fingerprint() == c.Fingerprint() {
		t.Errorf("different plans have the fingerprint %s", a.Fingerprint())
	}
	if d := mustPlan(t, base, interception.Facts{IPv6: true}); a.Fingerprint() == d.Fingerprint() {
		t.Errorf("plans with and without IPv6 have the fingerprint %s", a.Fingerprint())
	}
}

// TestCommentsFitTheKernel covers every rule that Plan can write.
func TestCommentsFitTheKernel(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t, annotate(trafficPrefix+"includeOutboundPorts", "80"), annotate(trafficPrefix+"includeOutboundIPRanges", "10.0.0.0/8,fd00::/8"),
		annotate(trafficPrefix+"excludeOutboundIPRanges", "10.1.0.0/16,fd01::/16"))
	for _, rule := range mustPlan(t, r, interception.Facts{IPv6: true}).Rules() {
		if comment := rule.Comment(); len(comment) > 128 || !strings.HasPrefix(comment, string(rule.ID)+" ") {
			t.Errorf("comment %q has %d bytes", comment, len(comment))
		}
	}
}

// TestPlanAsJSON reads a plan back from its JSON form.
func TestPlanAsJSON(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t, annotate("sidecar.istio.io/interceptionMode", "TPROXY"), proxyEnv("ISTIO_META_DNS_CAPTURE", "true"))
	plan := mustPlan(t, r, interception.Facts{IPv6: true})
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	var again interception.Plan
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if again.String() != plan.String() || again.Fingerprint() != plan.Fingerprint() {
		t.Errorf("reads back as\n%s\nwant\n%s", &again, plan)
	}
}

func BenchmarkPlan(b *testing.B) {
	r, _, err := Istio().Parse(meshPod())
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{0, 1000} {
		b.Run(fmt.Sprintf("exclusions=%d", n), func(b *testing.B) {
			var prefixes []netip.Prefix
			for i := range n {
				prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 26))
			}
			r := r
			r.Outbound.Exclude = interception.Prefixes(prefixes...)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Plan(r, interception.Facts{IPv6: true}, "test-mesh"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
