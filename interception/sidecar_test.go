// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func mustPlan(t *testing.T, r Redirect, f Facts) *Plan {
	t.Helper()
	plan, err := PlanSidecar(r, f, "test-mesh")
	if err != nil {
		t.Fatalf("PlanSidecar: %v", err)
	}
	return plan
}

func ruleIDs(p *Plan) string {
	var ids []string
	for _, rule := range p.Rules() {
		ids = append(ids, string(rule.ID))
	}
	return strings.Join(ids, " ")
}

func TestZeroRedirectCapturesNothing(t *testing.T) {
	t.Parallel()
	if plan := mustPlan(t, Redirect{}, Facts{IPv6: true}); len(plan.Objects) > 0 {
		t.Errorf("the plan of the zero Redirect is\n%s", plan)
	}
}

func TestPlanSidecarWithoutIPv6NamesNoIPv6(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t, annotate(trafficPrefix+"excludeOutboundIPRanges", "10.0.0.0/8,fd00::/8"))
	plan := mustPlan(t, r, Facts{})
	for _, rule := range plan.Rules() {
		if rule.Match.EffectiveFamily() == IPv6 {
			t.Errorf("rule %s is about IPv6", rule.ID)
		}
	}
	for table := range plan.Tables() {
		for _, entry := range table.Entries {
			if entry.Match.Family != IPv4 {
				t.Errorf("entry %s applies to %s, want v4 only", entry.ID, entry.Match.Family)
			}
		}
	}
}

func TestPlanSidecarLeavesOutWhatIsNotAsked(t *testing.T) {
	t.Parallel()
	onlyInbound := Redirect{Proxy: Proxy{InboundPort: 4143}, Inbound: Inbound{Include: Ports(80)}}
	if got := ruleIDs(mustPlan(t, onlyInbound, Facts{IPv6: true})); got != "inbound.capture" {
		t.Errorf("rules %q, want the inbound capture only", got)
	}
	onlyOutbound := Redirect{Proxy: Proxy{OutboundPort: 4140, UIDs: UIDs(2102)}, Outbound: Outbound{Include: AllPrefixes()}}
	if got := ruleIDs(mustPlan(t, onlyOutbound, Facts{IPv6: true})); got != "outbound.local outbound.proxy.uid outbound.capture" {
		t.Errorf("rules %q, want those of outbound capture by user", got)
	}
}

// TestPlanSidecarNeverWidens has prefixes of one family only: the other family must get no rule, not one for everything.
func TestPlanSidecarNeverWidens(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t, annotate(trafficPrefix+"includeOutboundIPRanges", "10.0.0.0/8"), annotate(trafficPrefix+"excludeOutboundIPRanges", "10.1.0.0/16"))
	plan := mustPlan(t, r, Facts{IPv6: true})
	for _, rule := range plan.Rules() {
		if strings.HasPrefix(string(rule.ID), "outbound.capture") || strings.HasPrefix(string(rule.ID), "outbound.exclude.prefixes") {
			if rule.Match.EffectiveFamily() != IPv4 {
				t.Errorf("rule %s (%s) applies to %s", rule.ID, rule.Match, rule.Match.EffectiveFamily())
			}
		}
	}
}

func TestPlanSidecarUsesSetsForManyPrefixes(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, setThreshold - 1, setThreshold, 1000} {
		var prefixes []netip.Prefix
		for i := range n {
			prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 26))
		}
		r, _ := mustParse(t)
		r.Outbound.Exclude = Prefixes(prefixes...)
		set, found := mustPlan(t, r, Facts{}).Set("outbound-exclude-v4")
		if found != (n >= setThreshold) {
			t.Errorf("%d prefixes: a set is there: %t", n, found)
		}
		if found && set.Members.Len() != n {
			t.Errorf("the set of %d prefixes has %d", n, set.Members.Len())
		}
	}
}

func TestPlanSidecarWholeFamily(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t, annotate(trafficPrefix+"includeOutboundIPRanges", "0.0.0.0/0,fd00::/8"))
	plan := mustPlan(t, r, Facts{IPv6: true})
	for _, rule := range plan.Rules() {
		if rule.ID == "outbound.capture.prefixes.v4" && rule.Match.String() != "v4 tcp" {
			t.Errorf("rule %s matches %q, want the whole family", rule.ID, rule.Match)
		}
	}
}

func TestPlanSidecarRefusesContradictions(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]Redirect{
		"unknown mode":          {Mode: 7},
		"no inbound port":       {Inbound: Inbound{Include: AllPorts()}},
		"no outbound port":      {Proxy: Proxy{UIDs: UIDs(1)}, Outbound: Outbound{Include: AllPrefixes()}},
		"no identity":           {Proxy: Proxy{OutboundPort: 1}, Outbound: Outbound{Include: AllPrefixes()}},
		"no identity for ports": {Proxy: Proxy{OutboundPort: 1}, Outbound: Outbound{IncludePorts: Ports(1)}},
	} {
		if plan, err := PlanSidecar(r, Facts{}, "test-mesh"); !errors.Is(err, ErrRedirect) || plan != nil {
			t.Errorf("%s: PlanSidecar = %v, want ErrRedirect", name, err)
		}
	}
}

func TestPlanSidecarRefusesWhatItCannotPlan(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*Pod){
		"TPROXY mode":              annotate("sidecar.istio.io/interceptionMode", "TPROXY"),
		"DNS capture":              proxyEnv("ISTIO_META_DNS_CAPTURE", "true"),
		"excluding interfaces":     annotate(trafficPrefix+"excludeInterfaces", "net1"),
		"rerouting interfaces":     annotate("istio.io/reroute-virtual-interfaces", "net1"),
		"dropping invalid packets": proxyEnv("INVALID_DROP", "true"),
	} {
		r, _ := mustParse(t, edit)
		_, err := PlanSidecar(r, Facts{}, "test-mesh")
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.Errorf("PlanSidecar = %v, want %q to be unsupported", err, name)
		}
	}
}

func TestPlanSidecarRefusesBadOwners(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t)
	for _, owner := range []Owner{"", "redirect", "Istio-cni", "istio-cni-plugin", "a-", "-a", "a--b", "1-a", "a-b c", "a-é"} {
		if _, err := PlanSidecar(r, Facts{}, owner); !errors.Is(err, ErrName) || !errors.Is(err, ErrPlan) {
			t.Errorf("owner %q: PlanSidecar = %v, want ErrName and ErrPlan", owner, err)
		}
	}
}

// TestFingerprint follows what reaches the kernel, and not where it came from.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	base, _ := mustParse(t)
	written, _ := mustParse(t, annotate(trafficPrefix+"includeOutboundIPRanges", "*"))
	other, _ := mustParse(t, annotate(trafficPrefix+"excludeOutboundPorts", "1"))
	a, b, c := mustPlan(t, base, Facts{}), mustPlan(t, written, Facts{}), mustPlan(t, other, Facts{})
	if a.Fingerprint() != b.Fingerprint() || a.String() == b.String() {
		t.Errorf("a default and the same value as annotation: fingerprints %s, %s; texts must differ by provenance only", a.Fingerprint(), b.Fingerprint())
	}
	if a.Fingerprint() == c.Fingerprint() {
		t.Errorf("different plans have the fingerprint %s", a.Fingerprint())
	}
	if d := mustPlan(t, base, Facts{IPv6: true}); a.Fingerprint() == d.Fingerprint() {
		t.Errorf("plans with and without IPv6 have the fingerprint %s", a.Fingerprint())
	}
}

// TestCommentsFitTheKernel holds for every rule that PlanSidecar can write, and for the longest that Build takes.
func TestCommentsFitTheKernel(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t, annotate(trafficPrefix+"includeOutboundPorts", "80"), annotate(trafficPrefix+"includeOutboundIPRanges", "10.0.0.0/8,fd00::/8"),
		annotate(trafficPrefix+"excludeOutboundIPRanges", "10.1.0.0/16,fd01::/16"))
	for _, rule := range mustPlan(t, r, Facts{IPv6: true}).Rules() {
		if comment := rule.Comment(); len(comment) > 128 || !strings.HasPrefix(comment, string(rule.ID)+" ") {
			t.Errorf("comment %q has %d bytes", comment, len(comment))
		}
	}
	longest := Rule{ID: RuleID(strings.Repeat("a", maxRuleID)), Action: Return{}, Why: strings.Repeat("b", maxWhy)}
	if comment := longest.Comment(); len(comment) > 128 {
		t.Errorf("the longest comment has %d bytes", len(comment))
	}
}

func BenchmarkPlanSidecar(b *testing.B) {
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
			r.Outbound.Exclude = Prefixes(prefixes...)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := PlanSidecar(r, Facts{IPv6: true}, "test-mesh"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
