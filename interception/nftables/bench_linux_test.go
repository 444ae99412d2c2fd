// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// sidecarPlan has the size of a default sidecar's plan, with more excluded prefixes on request.
func sidecarPlan(t testing.TB, excluded interception.PrefixSet) *interception.Plan {
	t.Helper()
	return build(t, "mesh-test", func(b *interception.Builder) {
		var sets []interception.SetRef
		for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
			if of := excluded.Of(family); !of.IsEmpty() {
				sets = append(sets, b.Set(interception.SetName("excluded-"+family.String()), of, "excluded destinations"))
			}
		}
		sidecarInbound(b.NAT("inbound"))
		sidecarOutput(b.NAT("output"), sets)
	})
}

func sidecarInbound(c *interception.ChainRef[interception.NATAction]) {
	tcp := interception.TCP()
	c.Entry(interception.Prerouting, interception.Match{L4: tcp}, "connections to the pod")
	for _, port := range []interception.Port{15008, 15020, 15021, 15090} {
		id := interception.RuleID(fmt.Sprintf("inbound.exclude-%d", port))
		c.Do(id, interception.Match{L4: tcp.To(interception.Ports(port))}, interception.Return{}, "excluded inbound port")
	}
	c.Do("inbound.capture", interception.Match{L4: tcp}, interception.RedirectTo{Port: 15006}, "inbound connections go to the proxy")
}

func sidecarOutput(c *interception.ChainRef[interception.NATAction], excluded []interception.SetRef) {
	tcp, lo := interception.TCP(), interception.Is(interception.Interfaces("lo"))
	uid, gid := interception.Is(interception.UIDs(1337)), interception.Is(interception.GIDs(1337))
	tunnel, inbound := interception.Ports(15008), interception.RedirectTo{Port: 15006}
	c.Entry(interception.Output, interception.Match{L4: tcp}, "connections from the pod")
	for _, family := range []struct {
		name                  interception.RuleID
		loopback, passthrough interception.PrefixSet
	}{
		{"v4", prefixes("127.0.0.1/32"), prefixes("127.0.0.6/32")},
		{"v6", prefixes("::1/128"), prefixes("::6/128")},
	} {
		handed := interception.Match{Out: lo, Src: interception.Is(family.passthrough)}
		c.Do("output.passthrough."+family.name, handed, interception.Return{}, "the proxy to the application")
		self := interception.Match{Out: lo, Dst: interception.Not(family.loopback), L4: tcp.NotTo(tunnel), UID: uid}
		c.Do("output.self-uid."+family.name, self, inbound, "the pod calling itself")
		self.UID, self.GID = interception.Condition[interception.UIDSet]{}, gid
		c.Do("output.self-gid."+family.name, self, inbound, "the pod calling itself")
		c.Do("output.loopback."+family.name, interception.Match{Dst: interception.Is(family.loopback)}, interception.Return{}, "stays local")
	}
	c.Do("output.uid", interception.Match{UID: uid}, interception.Return{}, "the proxy goes out by itself")
	c.Do("output.gid", interception.Match{GID: gid}, interception.Return{}, "the proxy goes out by itself")
	for _, set := range excluded {
		id := interception.RuleID("output.excluded." + set.Family.String())
		c.Do(id, interception.Match{DstSet: interception.Is(set)}, interception.Return{}, "excluded destinations")
	}
	c.Do("output.capture", interception.Match{L4: tcp}, interception.RedirectTo{Port: 15001}, "all other connections go to the proxy")
}

// scattered returns n prefixes of a family that neither touch nor overlap.
func scattered(n int, family interception.Family) interception.PrefixSet {
	list := make([]netip.Prefix, n)
	for i := range list {
		if family == interception.IPv4 {
			list[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 7), byte(i << 1), 0}), 24)
		} else {
			list[i] = netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(i >> 7), byte(i << 1)}), 48)
		}
	}
	return interception.Prefixes(list...)
}

func BenchmarkApplyFresh(b *testing.B) {
	benchmarkFresh(b, sidecarPlan(b, interception.PrefixSet{}))
}

func BenchmarkApply1000CIDRs(b *testing.B) {
	benchmarkFresh(b, sidecarPlan(b, scattered(1000, interception.IPv4)))
}

func benchmarkFresh(b *testing.B, plan *interception.Plan) {
	b.Helper()
	dp := dataplane(b)
	for b.Loop() {
		b.StopTimer()
		ns := newPod(b)
		b.StartTimer()
		if err := dp.Apply(b.Context(), ns.Netns, plan); err != nil {
			b.Fatal(err)
		}
	}
}
