// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

// expectAgreed sends packets through the pod of a plan on each backend, and fails the test unless
// they end as the traces predict.
func expectAgreed(t *testing.T, plan *interception.Plan, backends []backend, lines ...string) {
	t.Helper()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{
				Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")},
				Ports:     []uint16{8080}, ProxyPorts: []uint16{15001, 15006},
			})
			if err := pod.Apply(t.Context(), b.dataplane, plan); err != nil {
				t.Fatal(err)
			}
			world, err := pod.World(plan)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range lines {
				t.Run(line, func(t *testing.T) {
					t.Parallel()
					packet, err := trace.ParsePacket(line)
					if err != nil {
						t.Fatal(err)
					}
					c, err := pod.Compare(t.Context(), world, packet)
					if err != nil || c.Disagreement != "" {
						t.Errorf("%v\n%s", err, c.Report())
					}
				})
			}
		})
	}
}

// TestMarkedSockets uses sockets whose marks lead to the routes of TPROXY: what they send is local,
// whatever its destination.
func TestMarkedSockets(t *testing.T) {
	t.Parallel()
	plan := sidecarPlan(t, interception.Facts{IPv6: true}, func(r *sidecar.Redirect) { r.Mode = sidecar.ModeTProxy })
	var lines []string
	for _, socket := range []string{"", "transparent", "mark 0x539", "mark 0x539 transparent", "mark 0x53a"} {
		for _, way := range []string{
			"> 198.51.100.7:8080", "10.244.0.2:0 > 198.51.100.7:8080", "127.0.0.1:0 > 198.51.100.7:8080",
			"> 198.51.100.7:81", "10.244.0.2:0 > 198.51.100.7:81",
			"> 10.244.0.2:8080", "> 127.0.0.1:8080", "> 127.0.0.5:8080", "10.244.0.2:0 > 10.244.0.2:8080",
			"> [2001:db8:7::7]:8080", "[fd00:10:244::2]:0 > [2001:db8:7::7]:8080", "[::1]:0 > [2001:db8:7::7]:8080",
			"> [2001:db8:7::7]:81", "[fd00:10:244::2]:0 > [2001:db8:7::7]:81",
			"> [fd00:10:244::2]:8080", "> [::1]:8080", "[fd00:10:244::2]:0 > [fd00:10:244::2]:8080",
		} {
			lines = append(lines, "tcp uid 0 gid 0 "+socket+" "+way, "udp uid 0 gid 0 "+socket+" "+way)
		}
	}
	expectAgreed(t, plan, backends(t)[:1], lines...)
}

// TestUntracked uses connections and exchanges that connection tracking does not know, or in one
// direction only: the sockets know each other all the same.
func TestUntracked(t *testing.T) {
	t.Parallel()
	for name, hooks := range map[string][]interception.Hook{
		"both ways":      {interception.Output, interception.Prerouting},
		"going out":      {interception.Output},
		"what comes in":  {interception.Prerouting},
		"tracked anyway": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := interception.Build("test-mesh", func(b *interception.Builder) {
				for _, hook := range hooks {
					raw := b.Raw(interception.ChainName("at-" + hook.String()))
					raw.Entry(hook, interception.Match{}, "an entry")
					raw.Do(interception.RuleID("untracked."+hook.String()), interception.Match{}, interception.NoTrack{}, "nothing is tracked")
				}
				nat := b.NAT("output")
				nat.Entry(interception.Output, interception.Match{}, "an entry")
				nat.Do("capture", interception.Match{L4: interception.TCP().To(interception.Ports(443))}, interception.RedirectTo{Port: 15001}, "captured")
			})
			if err != nil {
				t.Fatal(err)
			}
			expectAgreed(t, plan, backends(t)[:1],
				"udp uid 0 gid 0 > 198.51.100.7:53", "udp uid 0 gid 0 > [2001:db8:7::7]:53",
				"udp uid 0 gid 0 10.244.0.2:0 > 198.51.100.7:53", "udp uid 0 gid 0 > 127.0.0.1:8080", "udp uid 0 gid 0 > [::1]:8080",
				"udp uid 0 gid 0 > 10.244.0.2:8080", "udp in eth0 192.0.2.9:40000 > 10.244.0.2:8080",
				"udp in eth0 [2001:db8::9]:40000 > [fd00:10:244::2]:8080",
				"tcp uid 0 gid 0 > 198.51.100.7:443", "tcp uid 0 gid 0 > 198.51.100.7:80", "tcp uid 0 gid 0 > [2001:db8:7::7]:80",
				"tcp uid 0 gid 0 > 127.0.0.1:8080", "tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8080", "tcp uid 0 gid 0 > 10.244.0.2:81",
			)
		})
	}
}

// TestOffsets has entries in places where iptables has no table.
func TestOffsets(t *testing.T) {
	t.Parallel()
	type match = interception.Match
	port := func(ports ...interception.Port) match {
		return match{L4: interception.TCP().To(interception.Ports(ports...))}
	}
	redirected := interception.Is(interception.Prefixes(netip.MustParsePrefix("127.0.0.1/32")))
	type at = func(table interception.TableKind, offset int32)
	marks := func(offset int32) func(*interception.Builder, at) {
		return func(b *interception.Builder, at at) {
			c := b.Mangle("output")
			c.Entry(interception.Output, match{}, "an entry")
			c.Do("mark", port(80), interception.SetMark{Mark: interception.WholeMark(7)}, "a mark")
			f := b.Filter("output")
			f.Entry(interception.Output, match{}, "an entry")
			f.Do("drop", match{Mark: interception.Is(interception.WholeMark(7))}, interception.Drop{}, "marked")
			at(interception.Mangle, offset)
		}
	}
	for name, build := range map[string]func(*interception.Builder, at){
		"a filter ahead of nat": func(b *interception.Builder, at at) {
			c := b.Filter("output")
			c.Entry(interception.Output, match{}, "an entry")
			c.Do("drop", match{L4: interception.TCP().To(interception.Ports(443)), Dst: redirected}, interception.Drop{}, "what was redirected elsewhere")
			c.Do("drop.all", port(443), interception.Drop{}, "what is not redirected yet")
			at(interception.Filter, -150)
		},
		"a filter after nat": func(b *interception.Builder, at at) {
			c := b.Filter("output")
			c.Entry(interception.Output, match{}, "an entry")
			c.Do("drop", port(443), interception.Drop{}, "what is not redirected")
			at(interception.Filter, 50)
		},
		"states ahead of connection tracking": func(b *interception.Builder, at at) {
			c := b.Mangle("output")
			c.Entry(interception.Output, match{}, "an entry")
			c.Do("drop", match{L4: interception.TCP().To(interception.Ports(80)), State: interception.Is(interception.StateInvalid)},
				interception.Drop{}, "nobody knows it yet")
			at(interception.Mangle, -100)
		},
		"zones after connection tracking": func(b *interception.Builder, at at) {
			c := b.Raw("output")
			c.Entry(interception.Output, match{}, "an entry")
			c.Do("untracked", port(443), interception.NoTrack{}, "too late")
			at(interception.Raw, 150)
		},
		"marks at the priority of filter": marks(150),
		"marks ahead of filter":           marks(149),
		"marks after filter":              marks(151),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			offsets := map[interception.TableKind]int32{}
			plan, err := interception.Build("test-mesh", func(b *interception.Builder) {
				build(b, func(table interception.TableKind, offset int32) { offsets[table] = offset })
				nat := b.NAT("output")
				nat.Entry(interception.Output, match{}, "an entry")
				nat.Do("capture", port(443), interception.RedirectTo{Port: 15001}, "captured")
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, object := range plan.Objects {
				if table, ok := object.(interception.Table); ok {
					for j := range table.Entries {
						table.Entries[j].Offset = offsets[table.Kind]
					}
					plan.Objects[i] = table
				}
			}
			expectAgreed(t, plan, backends(t)[:1],
				"tcp uid 0 gid 0 > 198.51.100.7:443", "tcp uid 0 gid 0 > 198.51.100.7:80", "tcp uid 0 gid 0 > [2001:db8:7::7]:443",
				"tcp uid 0 gid 0 > [2001:db8:7::7]:80",
			)
		})
	}
}
