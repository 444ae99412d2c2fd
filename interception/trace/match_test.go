// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"cmp"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	v4, v6 := connect(application, "192.0.2.1:80"), connect(application, "[2001:db8::1]:80")
	local := connect(application, "127.0.0.1:8080")
	from := func(packet trace.Packet, port uint16) trace.Packet {
		packet.Src = netip.AddrPortFrom(netip.Addr{}, port)
		return packet
	}
	for name, c := range map[string]struct {
		match          interception.Match
		yes, no        []trace.Packet
		hook           interception.Hook
		members        interception.PrefixSet // members of the match's sets
		srcSet, dstSet func(interception.SetRef) interception.Condition[interception.SetRef]
	}{
		"anything":      {match: interception.Match{}, yes: []trace.Packet{v4, v6, local, datagram(v4)}},
		"family v4":     {match: interception.Match{Family: interception.IPv4}, yes: []trace.Packet{v4}, no: []trace.Packet{v6}},
		"family v6":     {match: interception.Match{Family: interception.IPv6}, yes: []trace.Packet{v6}, no: []trace.Packet{v4}},
		"out":           {match: interception.Match{Out: interception.Is(interception.Interfaces("lo"))}, yes: []trace.Packet{local}, no: []trace.Packet{v4, v6}},
		"not out":       {match: interception.Match{Out: interception.Not(interception.Interfaces("lo"))}, yes: []trace.Packet{v4, v6}, no: []trace.Packet{local}},
		"out, several":  {match: interception.Match{Out: interception.Is(interception.Interfaces("lo", "eth0"))}, yes: []trace.Packet{local, v4}},
		"src":           {match: interception.Match{Src: interception.Is(set("10.244.0.0/24"))}, yes: []trace.Packet{v4}, no: []trace.Packet{local, v6}},
		"not src":       {match: interception.Match{Src: interception.Not(set("10.244.0.0/24"))}, yes: []trace.Packet{local}, no: []trace.Packet{v4, v6}},
		"dst":           {match: interception.Match{Dst: interception.Is(set("192.0.2.0/24"))}, yes: []trace.Packet{v4}, no: []trace.Packet{local, v6}},
		"not dst":       {match: interception.Match{Dst: interception.Not(set("192.0.2.0/24"))}, yes: []trace.Packet{local}, no: []trace.Packet{v4, v6}},
		"not dst, v6":   {match: interception.Match{Dst: interception.Not(set("::1/128"))}, yes: []trace.Packet{v6}, no: []trace.Packet{v4, local}},
		"tcp":           {match: interception.Match{L4: interception.TCP()}, yes: []trace.Packet{v4, v6}, no: []trace.Packet{datagram(v4)}},
		"udp":           {match: interception.Match{L4: interception.UDP()}, yes: []trace.Packet{datagram(v4)}, no: []trace.Packet{v4}},
		"dport":         {match: interception.Match{L4: interception.TCP().To(interception.Ports(80, 443))}, yes: []trace.Packet{v4, v6}, no: []trace.Packet{local, datagram(v4)}},
		"not dport":     {match: interception.Match{L4: interception.TCP().NotTo(interception.Ports(80))}, yes: []trace.Packet{local}, no: []trace.Packet{v4, datagram(local)}},
		"sport":         {match: interception.Match{L4: interception.TCP().From(interception.Ports(7))}, yes: []trace.Packet{from(v4, 7)}, no: []trace.Packet{v4, from(v4, 8)}},
		"not sport":     {match: interception.Match{L4: interception.TCP().NotFrom(interception.Ports(7))}, yes: []trace.Packet{v4}, no: []trace.Packet{from(v4, 7)}},
		"uid":           {match: interception.Match{UID: interception.Is(interception.UIDs(application))}, yes: []trace.Packet{v4}, no: []trace.Packet{connect(proxy, "192.0.2.1:80")}},
		"not uid":       {match: interception.Match{UID: interception.Not(interception.UIDs(application))}, yes: []trace.Packet{connect(proxy, "192.0.2.1:80")}, no: []trace.Packet{v4}},
		"gid":           {match: interception.Match{GID: interception.Is(interception.GIDs(1000))}, yes: []trace.Packet{v4}, no: []trace.Packet{connect(proxy, "192.0.2.1:80")}},
		"not gid":       {match: interception.Match{GID: interception.Not(interception.GIDs(1000))}, yes: []trace.Packet{connect(proxy, "192.0.2.1:80")}, no: []trace.Packet{v4}},
		"all of them":   {match: interception.Match{Dst: interception.Is(set("192.0.2.0/24")), UID: interception.Is(interception.UIDs(proxy))}, yes: []trace.Packet{connect(proxy, "192.0.2.1:80")}, no: []trace.Packet{v4, connect(proxy, "198.51.100.1:80")}},
		"set, dst":      {dstSet: interception.Is[interception.SetRef], members: set("192.0.2.0/24"), yes: []trace.Packet{v4}, no: []trace.Packet{local, v6}},
		"set, not dst":  {dstSet: interception.Not[interception.SetRef], members: set("192.0.2.0/24"), yes: []trace.Packet{local}, no: []trace.Packet{v4, v6}},
		"set, src":      {srcSet: interception.Is[interception.SetRef], members: set("fd00::/16"), yes: []trace.Packet{v6}, no: []trace.Packet{v4, local}},
		"set, not src":  {srcSet: interception.Not[interception.SetRef], members: set("fd00::/16"), yes: []trace.Packet{connect(application, "[::1]:80")}, no: []trace.Packet{v6, v4}},
		"in":            {hook: interception.Input, match: interception.Match{In: interception.Is(interception.Interfaces("lo"))}, yes: []trace.Packet{local}, no: []trace.Packet{arriving("10.244.0.9:40000", "10.244.0.2:8080")}},
		"not in":        {hook: interception.Input, match: interception.Match{In: interception.Not(interception.Interfaces("lo"))}, yes: []trace.Packet{arriving("10.244.0.9:40000", "10.244.0.2:8080")}, no: []trace.Packet{local}},
		"postrouting":   {hook: interception.Postrouting, match: interception.Match{Out: interception.Is(interception.Interfaces("eth0")), UID: interception.Is(interception.UIDs(application))}, yes: []trace.Packet{v4}, no: []trace.Packet{local, connect(proxy, "192.0.2.1:80")}},
		"not uid, post": {hook: interception.Postrouting, match: interception.Match{UID: interception.Not(interception.UIDs(proxy))}, yes: []trace.Packet{v4}, no: []trace.Packet{connect(proxy, "192.0.2.1:80")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := pod(build(t, func(b *interception.Builder) {
				match := c.match
				if c.srcSet != nil {
					match.SrcSet = c.srcSet(b.Set("members", c.members, "why"))
				}
				if c.dstSet != nil {
					match.DstSet = c.dstSet(b.Set("members", c.members, "why"))
				}
				chain := b.Mangle("chain")
				chain.Entry(cmp.Or(c.hook, interception.Output), interception.Match{}, "why")
				chain.Do("drop", match, interception.Drop{}, "why")
			}))
			for _, packet := range c.yes {
				if outcome := traced(t, world, packet); outcome.Verdict != trace.Dropped {
					t.Errorf("%s does not match %s\n%s", packet, c.match, outcome.Report())
				}
			}
			for _, packet := range c.no {
				if outcome := traced(t, world, packet); outcome.Verdict == trace.Dropped {
					t.Errorf("%s matches %s\n%s", packet, c.match, outcome.Report())
				}
			}
		})
	}
}
