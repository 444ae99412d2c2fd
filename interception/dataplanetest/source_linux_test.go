// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/trace"
)

// TestChosenSource has policy rules for the pod's addresses that lead a destination to the pod's
// own listener. The kernel finds them for a source that it has chosen itself only for IPv4, because
// it looks the route up once more. A datagram stands for IPv6: the trace of a whole connection
// would deviate (package trace, Non-goals).
func TestChosenSource(t *testing.T) {
	t.Parallel()
	pod := NewPod(t, PodOptions{ProxyPorts: []uint16{15006}})
	plan, err := interception.Build("test-source", func(b *interception.Builder) {
		for _, family := range []struct {
			of           interception.Family
			source, dest string
		}{{interception.IPv4, "10.244.1.10/32", "198.51.100.7/32"}, {interception.IPv6, "fd00:10:244:1::a/128", "2001:db8:7::7/128"}} {
			id := interception.RuleID(family.of.String())
			b.Route(interception.Route{
				ID: "route." + id, Type: interception.RouteLocal, Destination: netip.MustParsePrefix(family.dest), Device: "lo", Table: 100, Why: "test",
			})
			b.PolicyRule(interception.PolicyRule{
				ID: "rule." + id, Family: family.of, Source: netip.MustParsePrefix(family.source), Table: 100, Priority: 50, Why: "test",
			})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Apply(t.Context(), d, plan); err != nil {
		t.Fatal(err)
	}
	world, err := pod.World(plan)
	if err != nil {
		t.Fatal(err)
	}
	for line, at := range map[string]Place{
		"tcp uid 0 gid 0 > 198.51.100.7:15006":                             InPod,
		"udp uid 0 gid 0 > 198.51.100.7:15006":                             InPod,
		"tcp uid 0 gid 0 10.244.1.10:40000 > 198.51.100.7:15006":           InPod,
		"tcp uid 0 gid 0 > 198.51.100.8:15006":                             Elsewhere,
		"udp uid 0 gid 0 > [2001:db8:7::7]:15006":                          Elsewhere,
		"tcp uid 0 gid 0 [fd00:10:244:1::a]:40000 > [2001:db8:7::7]:15006": InPod,
	} {
		packet, err := trace.ParsePacket(line)
		if err != nil {
			t.Fatal(err)
		}
		c, err := pod.Compare(t.Context(), world, packet)
		if err != nil || c.Disagreement != "" || c.Observed.Verdict != Accepted || c.Observed.At != at {
			t.Errorf("%s: %v, want it at %s\n%s", line, err, at, c.Report())
		}
	}
}
