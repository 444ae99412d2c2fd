// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
)

// upstream returns the rules that Istio's node agent writes since 1.25, in its order, one for each
// of its lines.
func upstream(t *testing.T, ipv6, dns, ingress bool, virtual ...interception.Interface) *interception.Plan {
	t.Helper()
	plan, err := interception.Build("istio-up", func(b *interception.Builder) {
		u := upstreamRules{b: b, families: []upstreamFamily{{interception.IPv4, "0.0.0.0/0", "127.0.0.1/32", "169.254.7.127/32"}}}
		if ipv6 {
			u.families = append(u.families,
				upstreamFamily{interception.IPv6, "::/0", "::1/128", "fd16:9254:7127:1337:ffff:ffff:ffff:ffff/128"})
		}
		u.mangle()
		u.prerouting(ingress, virtual)
		u.output(dns)
		if dns {
			u.raw()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

type upstreamFamily struct {
	family               interception.Family
	all, loopback, probe string
}

func (f upstreamFamily) not(prefix string) interception.Condition[interception.PrefixSet] {
	return interception.Not(interception.Prefixes(netip.MustParsePrefix(prefix)))
}

func (f upstreamFamily) is(prefix string) interception.Condition[interception.PrefixSet] {
	return interception.Is(interception.Prefixes(netip.MustParsePrefix(prefix)))
}

type upstreamRules struct {
	b        *interception.Builder
	families []upstreamFamily
}

var (
	upstreamProxy = interception.MarkBits{Value: 0x539, Mask: 0xfff}
	upstreamReply = interception.MarkBits{Value: 0x111, Mask: 0xfff}
)

func (u upstreamRules) hooked() interception.Match {
	if len(u.families) > 1 {
		return interception.Match{}
	}
	return interception.Match{Family: interception.IPv4}
}

func (u upstreamRules) mangle() {
	in, out := u.b.Mangle("mangle-in"), u.b.Mangle("mangle-out")
	in.Entry(interception.Prerouting, u.hooked(), "M1")
	out.Entry(interception.Output, u.hooked(), "M2")
	for _, f := range u.families {
		in.Do(id("m3", f.family), interception.Match{Family: f.family, Mark: interception.Is(upstreamProxy)},
			interception.SetConnMark{Mark: upstreamReply}, "M3")
		out.Do(id("m4", f.family), interception.Match{Family: f.family, ConnMark: interception.Is(upstreamReply)},
			interception.RestoreMark{}, "M4")
		u.b.Route(interception.Route{
			ID: id("route", f.family), Type: interception.RouteLocal, Destination: netip.MustParsePrefix(f.all), Device: "lo", Table: 100, Why: "route",
		})
		u.b.PolicyRule(interception.PolicyRule{
			ID: id("rule", f.family), Family: f.family, Mark: upstreamReply, Table: 100, Priority: 32764, Why: "rule",
		})
	}
}

func (u upstreamRules) prerouting(ingress bool, virtual []interception.Interface) {
	in := u.b.NAT("nat-in")
	in.Entry(interception.Prerouting, u.hooked(), "P2")
	for _, f := range u.families {
		for _, name := range virtual {
			match := interception.Match{Family: f.family, In: interception.Is(interception.Interfaces(name)), L4: interception.TCP()}
			in.Do(id("p3."+string(name), f.family), match, interception.RedirectTo{Port: 15001}, "P3")
			in.Do(id("p3.return."+string(name), f.family), match, interception.Return{}, "P3")
		}
		if ingress {
			continue
		}
		in.Do(id("p4", f.family), interception.Match{Src: f.is(f.probe), L4: interception.TCP()}, interception.Accept{}, "P4")
		in.Do(id("p6", f.family), interception.Match{
			Dst: f.not(f.loopback), L4: interception.TCP().NotTo(interception.Ports(15008)), Mark: interception.Not(upstreamProxy),
		}, interception.RedirectTo{Port: 15006}, "P6")
	}
}

func (u upstreamRules) output(dns bool) {
	out := u.b.NAT("nat-out")
	out.Entry(interception.Output, u.hooked(), "P1")
	for _, f := range u.families {
		out.Do(id("p5", f.family), interception.Match{Dst: f.is(f.probe), L4: interception.TCP()}, interception.Accept{}, "P5")
		if dns {
			out.Do(id("p7", f.family), interception.Match{
				Family: f.family, Out: interception.Not(interception.Interfaces("lo")), L4: interception.UDP().To(interception.Ports(53)),
				Mark: interception.Not(upstreamProxy),
			}, interception.RedirectTo{Port: 15053}, "P7")
			out.Do(id("p8", f.family), interception.Match{
				Dst: f.not(f.loopback), L4: interception.TCP().To(interception.Ports(53)), Mark: interception.Not(upstreamProxy),
			}, interception.RedirectTo{Port: 15053}, "P8")
		}
		out.Do(id("p9", f.family), interception.Match{Family: f.family, L4: interception.TCP(), Mark: interception.Is(upstreamReply)},
			interception.Accept{}, "P9")
		out.Do(id("p10", f.family), interception.Match{Dst: f.not(f.loopback), Out: interception.Is(interception.Interfaces("lo"))},
			interception.Accept{}, "P10")
		out.Do(id("p11", f.family), interception.Match{Dst: f.not(f.loopback), L4: interception.TCP(), Mark: interception.Not(upstreamProxy)},
			interception.RedirectTo{Port: 15001}, "P11")
	}
}

func (u upstreamRules) raw() {
	in, out := u.b.Raw("raw-in"), u.b.Raw("raw-out")
	in.Entry(interception.Prerouting, u.hooked(), "R1")
	out.Entry(interception.Output, u.hooked(), "R2")
	for _, f := range u.families {
		out.Do(id("r3", f.family), interception.Match{
			Family: f.family, L4: interception.UDP().To(interception.Ports(53)), Mark: interception.Is(upstreamProxy),
		}, interception.SetZone{Zone: 1}, "R3")
		in.Do(id("r4", f.family), interception.Match{
			Family: f.family, L4: interception.UDP().From(interception.Ports(53)), Mark: interception.Not(upstreamProxy),
		}, interception.SetZone{Zone: 1}, "R4")
	}
}

// TestPodPlanDoesWhatUpstreamDoes compares the plans with upstream's rules, for the inputs of
// upstream's golden files.
func TestPodPlanDoesWhatUpstreamDoes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations map[string]string
		dnsDefault  bool
		dns         bool
		ingress     bool
		virtual     []interception.Interface
	}{
		"default": {dnsDefault: true, dns: true},
		"no dns":  {},
		"ingress": {annotations: map[string]string{"ambient.istio.io/bypass-inbound-capture": "true"}, ingress: true},
		"virtual interfaces": {
			annotations: map[string]string{"istio.io/reroute-virtual-interfaces": "fake1s0f0, fake1s0f1"},
			virtual:     []interception.Interface{"fake1s0f0", "fake1s0f1"},
		},
		"ingress and virtual interfaces": {
			annotations: map[string]string{
				"ambient.istio.io/bypass-inbound-capture": "true", "istio.io/reroute-virtual-interfaces": "fake1s0f0,fake1s0f1",
			},
			ingress: true, virtual: []interception.Interface{"fake1s0f0", "fake1s0f1"},
		},
		"dns for the pod":     {annotations: map[string]string{"ambient.istio.io/dns-capture": "true"}, dns: true},
		"dns not for the pod": {annotations: map[string]string{"ambient.istio.io/dns-capture": "false"}, dnsDefault: true},
	} {
		for _, facts := range []interception.Facts{{}, {IPv6: true, LoopbackIPv6: true}} {
			t.Run(name+map[bool]string{true: " dual"}[facts.IPv6], func(t *testing.T) {
				t.Parallel()
				overrides, warnings, err := Istio().Parse(interception.Pod{Annotations: test.annotations}, DefaultOverrides(test.dnsDefault))
				if err != nil || len(warnings) > 0 {
					t.Fatal(warnings, err)
				}
				ours, err := PodPlan(overrides, IstioNumbers(), facts, "test-ambient")
				if err != nil {
					t.Fatal(err)
				}
				theirs := upstream(t, facts.IPv6, test.dns, test.ingress, test.virtual...)
				comparison, err := proof.Equivalent(ours, theirs, proof.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if comparison.Answer != proof.Yes {
					t.Errorf("%s\nours:\n%s\nupstream's:\n%s", comparison, ours, theirs)
				}
				findings, err := proof.Lint(ours, proof.Options{})
				if err != nil || len(findings) > 0 {
					t.Errorf("Lint: %v, %v\n%s", findings, err, ours)
				}
			})
		}
	}
}
