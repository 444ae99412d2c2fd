// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// TestTunnelsOfPods has the pod B captured in its own namespace, too, and follows what opens
// tunnels between proxies: those of proxies in pods are left alone, and all else is captured.
func TestTunnelsOfPods(t *testing.T) {
	t.Parallel()
	m := meshed()
	m.numbers.Former.InPods = true
	world := withPods(m.world(t))
	for i := range world.Namespaces {
		if world.Namespaces[i].Name != "node" {
			continue
		}
		for _, family := range families(m.facts) {
			member := map[interception.Family]string{interception.IPv4: "10.244.0.6/32", interception.IPv6: "fd00:10:244::6/128"}[family]
			world.Namespaces[i].LiveSets = append(world.Namespaces[i].LiveSets, trace.LiveSet{
				Owner: "test-ambient", Name: m.numbers.Former.SharedSet(family), Members: interception.Prefixes(prefixes(member)...),
			})
		}
	}
	captured := "node " + captures
	for name, w := range map[string]struct{ from, packet, way string }{
		"from a meshed pod":              {"a", "tcp uid 0 gid 0 > 198.51.100.7:15008", "a > node outbound.tunnel > elsewhere = application"},
		"from a meshed pod, no tunnel":   {"a", "tcp uid 0 gid 0 > 198.51.100.7:8080", "a > " + captured},
		"to a pod with a proxy":          {"elsewhere", "tcp uid 0 gid 0 > 10.244.0.6:15008", "elsewhere > node inbound.tunnel > b = application"},
		"between both":                   {"a", "tcp uid 0 gid 0 > 10.244.0.6:15008", "a > node outbound.tunnel inbound.tunnel > b = application"},
		"to a pod with a proxy, no such": {"elsewhere", "tcp uid 0 gid 0 > 10.244.0.6:8080", "elsewhere > node " + receives + "capture = inbound"},
		"to a pod without":               {"elsewhere", "tcp uid 0 gid 0 > 10.244.0.2:15008", "elsewhere > node " + receives + "tunnel = tunnel"},
		"from one to a pod without": {
			"b", "tcp uid 0 gid 0 > 10.244.0.2:15008", "b > node outbound.tunnel " + receives + "tunnel = tunnel",
		},
	} {
		for _, line := range []string{w.packet, sixth(w.packet)} {
			c := converse(t, world)
			c.line(w.from, line)
			if got := stages(c.journey); got != w.way {
				t.Errorf("%s, %s:\ngot  %s\nwant %s\n%s", name, line, got, w.way, c.journey.Report())
			}
		}
	}
}
