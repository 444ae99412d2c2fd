// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

// TestWhatOthersGotWrong has situations in which the rules of a mesh were once wrong, and where
// packets end here: at which listener or link, by which rule. Invalid annotations are tested in
// package interception, cases that need a kernel in package nftables.
func TestWhatOthersGotWrong(t *testing.T) {
	t.Parallel()
	for _, v := range mistakes(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			world := trace.Sidecar(v.plans[0], trace.SidecarOptions{
				Listeners: []trace.Listener{{Name: "application", Protocol: interception.ProtocolTCP, Port: 8080}}, Loopback: v.loopback,
			})
			world.Namespaces[0].Plans = v.plans
			for _, p := range v.packets {
				outcome := traced(t, world, p.packet)
				if got := end(outcome); got != p.want {
					t.Errorf("%s\n got: %s\nwant: %s\n%s", p.packet, got, p.want, outcome.Report())
				}
			}
		})
	}
}

// mistake is a situation.
type mistake struct {
	name     string
	plans    []*interception.Plan // in the order of evaluation
	packets  []expectation
	loopback []netip.Prefix
}

type expectation struct {
	packet trace.Packet
	want   string
}

// end is where a packet ends, and the rule that decided it.
func end(o trace.Outcome) string {
	text := o.Verdict.String()
	if o.Verdict == trace.Delivered {
		text = o.Listener.Name
	}
	if o.Verdict == trace.Sent {
		text = string(o.Link)
	}
	if step, ok := o.Decisive(); ok {
		text += " by " + string(step.Rule.ID)
	}
	return text
}

// sidecarOf returns the plan of a pod with Istio's defaults and a change.
func sidecarOf(t *testing.T, change func(*sidecar.Redirect)) []*interception.Plan {
	t.Helper()
	redirect, _, err := sidecar.Istio().Parse(interception.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	change(&redirect)
	return []*interception.Plan{planned(t, redirect, interception.Facts{IPv6: true})}
}

func mistakes(t *testing.T) []mistake {
	t.Helper()
	// With a range at the fifteenth slot of iptables' multiport.
	var sixteen interception.PortSet
	for port := interception.Port(1); port <= 27; port += 2 {
		sixteen = sixteen.Union(interception.Ports(port))
	}
	sixteen = sixteen.Union(interception.PortRange(100, 110)).Union(interception.Ports(200))
	byRoot := trace.Packet{From: trace.Socket{}, Protocol: interception.ProtocolTCP, Dst: netip.MustParseAddrPort("192.0.2.1:80")}
	resolver, public := "127.0.0.11:53", "198.51.100.53:53"
	return []mistake{
		{
			name:  "IPv4 prefixes alone say nothing about IPv6, included",
			plans: sidecarOf(t, func(r *sidecar.Redirect) { r.Outbound.Include = set("10.0.0.0/8") }),
			packets: []expectation{
				{connect(application, "10.1.2.3:80"), "proxy-15001 by outbound.capture.prefixes.v4"},
				{connect(application, "192.0.2.1:80"), "eth0"},
				{connect(application, "[fd01::1]:80"), "eth0"},
				{arriving("[fd00:10:244::9]:40000", "[fd00:10:244::2]:80"), "proxy-15006 by inbound.capture"},
			},
		},
		{
			name:  "IPv4 prefixes alone say nothing about IPv6, excluded",
			plans: sidecarOf(t, func(r *sidecar.Redirect) { r.Outbound.Exclude = set("10.0.0.0/8") }),
			packets: []expectation{
				{connect(application, "10.1.2.3:80"), "eth0 by outbound.exclude.prefixes.v4"},
				{connect(application, "[fd01::1]:80"), "proxy-15001 by outbound.capture"},
			},
		},
		{
			name:  "sixteen ports and a range are all excluded, and no other",
			plans: sidecarOf(t, func(r *sidecar.Redirect) { r.Outbound.ExcludePorts = sixteen }),
			packets: []expectation{
				{connect(application, "192.0.2.1:1"), "eth0 by outbound.exclude.ports"},
				{connect(application, "192.0.2.1:27"), "eth0 by outbound.exclude.ports"},
				{connect(application, "192.0.2.1:28"), "proxy-15001 by outbound.capture"},
				{connect(application, "192.0.2.1:99"), "proxy-15001 by outbound.capture"},
				{connect(application, "192.0.2.1:100"), "eth0 by outbound.exclude.ports"},
				{connect(application, "192.0.2.1:110"), "eth0 by outbound.exclude.ports"},
				{connect(application, "192.0.2.1:111"), "proxy-15001 by outbound.capture"},
				{connect(application, "192.0.2.1:200"), "eth0 by outbound.exclude.ports"},
			},
		},
		{
			name: "user 0 is a user like others, not nobody",
			plans: []*interception.Plan{build(t, func(b *interception.Builder) {
				c := entered(b.NAT("output"))
				c.Do("exclude.users", interception.Match{UID: interception.Is(interception.UIDs(0))}, interception.Return{}, "excluded users")
				c.Do("capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "the rest")
			})},
			packets: []expectation{
				{byRoot, "eth0 by exclude.users"},
				{connect(application, "192.0.2.1:80"), "proxy-15001 by capture"},
			},
		},
		{
			name: "a port that is included and excluded is excluded",
			plans: sidecarOf(t, func(r *sidecar.Redirect) {
				r.Inbound.Include, r.Inbound.Exclude = interception.Ports(8080, 9090), interception.Ports(8080)
				r.Outbound.Include = interception.PrefixSet{}
				r.Outbound.IncludePorts, r.Outbound.ExcludePorts = interception.Ports(80, 81), interception.Ports(80)
			}),
			packets: []expectation{
				{arriving("10.244.0.9:40000", "10.244.0.2:8080"), "application by inbound.exclude.ports"},
				{arriving("10.244.0.9:40000", "10.244.0.2:9090"), "proxy-15006 by inbound.capture"},
				{connect(application, "192.0.2.1:80"), "eth0 by outbound.exclude.ports"},
				{connect(application, "192.0.2.1:81"), "proxy-15001 by outbound.capture.ports"},
			},
		},
		{
			name:  "an application calls itself: its service, its address, another loopback address",
			plans: sidecarOf(t, func(*sidecar.Redirect) {}),
			packets: []expectation{
				{connect(application, "10.96.0.1:80"), "proxy-15001 by outbound.capture"},
				{connect(application, "10.244.0.2:8080"), "application by outbound.local"},
				{connect(application, "127.0.0.2:8080"), "application by outbound.local"},
				// By way of the service's address.
				{connect(proxy, "10.244.0.2:8080"), "proxy-15006 by outbound.self.v4.uid"},
				{bound(connect(proxy, "10.244.0.2:8080"), "127.0.0.6"), "application by outbound.passthrough.v4"},
			},
		},
		{
			name:  "an application calls itself where local traffic is captured: all but the loopback that is spared",
			plans: sidecarOf(t, func(r *sidecar.Redirect) { r.Outbound.CaptureLocal = true }),
			packets: []expectation{
				{connect(application, "10.244.0.2:8080"), "proxy-15001 by outbound.capture"},
				{connect(application, "127.0.0.2:8080"), "proxy-15001 by outbound.capture"},
				{connect(application, "127.0.0.1:8080"), "application by outbound.loopback.v4"},
				{connect(application, "[::1]:8080"), "application by outbound.loopback.v6"},
			},
		},
		{
			name:  "the proxy calls the application by loopback",
			plans: sidecarOf(t, func(*sidecar.Redirect) {}),
			packets: []expectation{
				{connect(proxy, "127.0.0.1:8080"), "application by outbound.proxy.uid"},
				{connect(proxy, "[::1]:8080"), "application by outbound.proxy.uid"},
			},
		},
		{
			name:  "rules of nobody: a hook that leads into an empty chain",
			plans: []*interception.Plan{build(t, func(b *interception.Builder) { entered(b.NAT("output")) })},
			packets: []expectation{
				{connect(application, "192.0.2.1:80"), "eth0"},
				{connect(application, "127.0.0.1:8080"), "application"},
			},
		},
		{
			name: "a resolver in the pod, on another loopback address",
			plans: sidecarOf(t, func(r *sidecar.Redirect) {
				r.DNS.Port, r.DNS.Servers = 15053, set("127.0.0.11/32")
			}),
			packets: []expectation{
				{datagram(connect(application, resolver)), "proxy-15053 by dns.udp.v4"},
				{connect(application, resolver), "proxy-15053 by dns.tcp.v4"},
				// The resolver gets the query, but is not in this world.
				{datagram(connect(proxy, resolver)), "refused by outbound.proxy.uid"},
				{datagram(connect(application, public)), "eth0"},
			},
		},
		{
			name:  "a resolver on loopback, and all queries are captured",
			plans: sidecarOf(t, func(r *sidecar.Redirect) { r.DNS.Port = 15053 }),
			packets: []expectation{
				{datagram(connect(application, "127.0.0.53:53")), "proxy-15053 by dns.udp"},
				{connect(application, "127.0.0.53:53"), "proxy-15053 by dns.tcp"},
				{datagram(connect(application, "[::1]:53")), "proxy-15053 by dns.udp"},
				{datagram(connect(proxy, "127.0.0.53:53")), "refused by outbound.proxy.uid"},
			},
		},
		{
			name:    "another owner's table with the same priority: the first translation stands",
			plans:   append([]*interception.Plan{foreign(t)}, sidecarOf(t, func(*sidecar.Redirect) {})...),
			packets: []expectation{{connect(application, "192.0.2.1:80"), "proxy-9999 by foreign.capture"}},
		},
		{
			name:    "another owner's table with the same priority, asked later",
			plans:   append(sidecarOf(t, func(*sidecar.Redirect) {}), foreign(t)),
			packets: []expectation{{connect(application, "192.0.2.1:80"), "proxy-15001 by outbound.capture"}},
		},
		{
			name: "a port that is exempted after the rule that captures all is not exempted",
			plans: []*interception.Plan{build(t, func(b *interception.Builder) {
				c := b.NAT("inbound")
				c.Entry(interception.Prerouting, interception.Match{L4: interception.TCP()}, "connections to the pod")
				c.Do("capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15006}, "to the proxy")
				c.Do("admin", interception.Match{L4: interception.TCP().To(interception.Ports(8080))}, interception.Return{}, "never met")
			})},
			packets: []expectation{{arriving("10.244.0.9:40000", "10.244.0.2:8080"), "proxy-15006 by capture"}},
		},
	}
}

// foreign is another owner's plan, which captures what the pod sends.
func foreign(t *testing.T) *interception.Plan {
	t.Helper()
	return buildFor(t, "other-owner", func(b *interception.Builder) {
		entered(b.NAT("chain")).Do("foreign.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 9999}, "by another owner")
	})
}
