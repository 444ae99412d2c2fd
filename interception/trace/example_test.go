// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

func ExampleTrace() {
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		output.Do("output.proxy", interception.Match{UID: interception.Is(interception.UIDs(1337))}, interception.Return{}, "the proxy is free")
		output.Do("output.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "the rest goes to the proxy")
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	world := trace.Sidecar(plan, trace.SidecarOptions{})
	for _, uid := range []interception.UID{1000, 1337} {
		outcome, err := trace.Trace(world, trace.Packet{
			From:     trace.Socket{UID: uid},
			Protocol: interception.ProtocolTCP,
			Dst:      netip.MustParseAddrPort("192.0.2.1:80"),
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(outcome)
	}
	// Output:
	// delivered to proxy-15001 (proxy) at 127.0.0.1:15001, originally 192.0.2.1:80; output.capture: the rest goes to the proxy
	// sent by eth0 to 192.0.2.1:80; output.proxy: the proxy is free
}

// A plan for a pod records which annotation caused each rule.
func ExampleOutcome_Report() {
	redirect, _, err := sidecar.Istio().Parse(interception.Pod{Annotations: map[string]string{
		"traffic.sidecar.istio.io/excludeOutboundPorts": "5432",
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := sidecar.Plan(redirect, interception.Facts{}, "my-mesh")
	if err != nil {
		fmt.Println(err)
		return
	}
	outcome, err := trace.Trace(trace.Sidecar(plan, trace.SidecarOptions{}), trace.Packet{
		From:     trace.Socket{UID: 1000, GID: 1000},
		Protocol: interception.ProtocolTCP,
		Dst:      netip.MustParseAddrPort("192.0.2.1:5432"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(outcome.Report())
	// Output:
	// tcp uid 1000 gid 1000 10.244.0.2:32768 > 192.0.2.1:5432
	//   pod output out eth0
	//     my-mesh nat: v4 tcp -> jump output  # nat.output.output: connections from the pod
	//     my-mesh nat/output: tcp dport 5432 -> return  # outbound.exclude.ports: excluded outbound ports
	//       from annotation traffic.sidecar.istio.io/excludeOutboundPorts="5432"
	// sent by eth0 to 192.0.2.1:5432; outbound.exclude.ports: excluded outbound ports
}

// A world is a value: here, another owner's plan comes first.
func ExampleSidecar() {
	world := trace.Sidecar(nil, trace.SidecarOptions{Listeners: []trace.Listener{
		{Name: "database", Protocol: interception.ProtocolTCP, Port: 5432},
	}})
	guard, err := interception.Build("net-guard", func(b *interception.Builder) {
		input := b.Filter("input")
		input.Entry(interception.Input, interception.Match{In: interception.Not(interception.Interfaces("lo"))}, "from outside")
		input.Do("input.database", interception.Match{L4: interception.TCP().To(interception.Ports(5432))}, interception.Drop{}, "the database is private")
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	world.Namespaces[0].Plans = append(world.Namespaces[0].Plans, guard)
	outcome, err := trace.Trace(world, trace.Packet{
		From:     trace.Arrival{Link: "eth0"},
		Protocol: interception.ProtocolTCP,
		Src:      netip.MustParseAddrPort("10.244.0.9:40000"),
		Dst:      netip.MustParseAddrPort("10.244.0.2:5432"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	step, _ := outcome.Decisive()
	fmt.Println(outcome.Verdict, "by", step.Owner, step.Rule.ID)
	// Output:
	// dropped by net-guard input.database
}

// A connection is traced packet by packet: the application gets the proxy's answer from the address
// that it connected to.
func ExampleOutcome_Answer() {
	redirect := sidecar.Redirect{
		Proxy:    sidecar.Proxy{UIDs: interception.UIDs(1337), OutboundPort: 15001},
		Outbound: sidecar.Outbound{Include: interception.AllPrefixes()},
	}
	plan, err := sidecar.Plan(redirect, interception.Facts{}, "my-mesh")
	if err != nil {
		fmt.Println(err)
		return
	}
	world := trace.Sidecar(plan, trace.SidecarOptions{})
	packet := trace.Packet{From: trace.Socket{UID: 1000}, Protocol: interception.ProtocolTCP, Dst: netip.MustParseAddrPort("192.0.2.1:80")}
	opening, err := trace.Trace(world, packet)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := trace.Trace(world, opening.Answer(trace.Socket{UID: 1337}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(answer.Report())
	// Output:
	// tcp flags syn,ack uid 1337 gid 0 127.0.0.1:15001 > 10.244.0.2:32768
	//   bound by nat: now 192.0.2.1:80 > 10.244.0.2:32768
	// delivered to uid 1000 gid 0 at 10.244.0.2:32768, from 192.0.2.1:80; no rule decided
}
