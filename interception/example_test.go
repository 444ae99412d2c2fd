// SPDX-License-Identifier: Apache-2.0

package interception_test

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// From a pod's annotations to the rules, without a kernel.
func Example() {
	pod := interception.Pod{
		Namespace: "shop", Name: "cart-0",
		Annotations: map[string]string{
			"sidecar.istio.io/status":                          "{}",
			"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.96.0.0/12",
			"traffic.sidecar.istio.io/includeInboundPorts":     "8080",
			"traffic.sidecar.istio.io/excludeOutboundPorts":    "",
		},
		Containers: []interception.Container{{Name: "app"}, {Name: "istio-proxy"}},
	}
	dialect := interception.Istio()
	fmt.Println(interception.Decide(pod, interception.Policy{Membership: dialect.Membership}))
	redirect, warnings, err := dialect.Parse(pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := interception.PlanSidecar(redirect, interception.Facts{}, "my-mesh")
	if err != nil {
		fmt.Println(err)
		return
	}
	for position, rule := range plan.Rules() {
		fmt.Printf("%s: %s -> %s\n", position, rule.Match, rule.Action)
	}
	fmt.Println(len(warnings), "warnings")
	// Output:
	// in-mesh
	// nat/inbound[0]: tcp dport 15008 -> return
	// nat/inbound[1]: tcp dport 8080 -> redirect to :15006
	// nat/output[0]: out lo src 127.0.0.6/32 -> return
	// nat/output[1]: out lo dst != 127.0.0.1/32 tcp dport != 15008 uid 1337 -> redirect to :15006
	// nat/output[2]: out lo dst != 127.0.0.1/32 tcp dport != 15008 gid 1337 -> redirect to :15006
	// nat/output[3]: out lo uid != 1337 gid != 1337 -> return
	// nat/output[4]: uid 1337 -> return
	// nat/output[5]: gid 1337 -> return
	// nat/output[6]: dst 127.0.0.1/32 -> return
	// nat/output[7]: dst 10.96.0.0/12 tcp -> redirect to :15001
	// 0 warnings
}

// A plan written by hand. What cannot work is refused with its place and the reason.
func ExampleBuild() {
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		output.Do("output.proxy", interception.Match{UID: interception.Is(interception.UIDs(2102))}, interception.Return{},
			"the proxy goes out by itself")
		output.Do("output.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 4140},
			"all other connections go to the proxy")
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(plan)

	_, err = interception.Build("my-mesh", func(b *interception.Builder) {
		both := interception.Prefixes(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))
		b.NAT("output").Do("output.local", interception.Match{Dst: interception.Is(both)}, interception.Return{}, "local")
	})
	fmt.Println(err)
	// Output:
	// plan my-mesh
	// table nat
	//   hook output: tcp -> jump output  # nat.output.output: connections from the pod
	//   chain output
	//     uid 2102 -> return  # output.proxy: the proxy goes out by itself
	//     tcp -> redirect to :4140  # output.capture: all other connections go to the proxy
	// invalid plan: nat/output[0] "output.local": prefixes of both families in one condition (10.0.0.0/8,fd00::/8): write a rule for each family
}

// A bad annotation is an error that names key, value and reason.
func ExampleDialect_Parse() {
	_, _, err := interception.Istio().Parse(interception.Pod{Annotations: map[string]string{
		"traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.0.0.1",
	}})
	fmt.Println(err)

	_, warnings, _ := interception.Istio().Parse(interception.Pod{Annotations: map[string]string{
		"traffic.sidecar.istio.io/excludeInboundPort": "9090",
	}})
	fmt.Println(warnings[0])
	// Output:
	// invalid annotation traffic.sidecar.istio.io/excludeOutboundIPRanges="10.0.0.1": "10.0.0.1" is an address: write it as the prefix 10.0.0.1/32
	// annotation traffic.sidecar.istio.io/excludeInboundPort="9090": the istio dialect knows no such key, and it has no effect: check its spelling
}

// Sets are values in a canonical form: nested and adjacent members fold.
func ExampleParsePrefixSet() {
	set, err := interception.ParsePrefixSet("10.128.0.0/9, 10.0.0.0/9, 10.1.0.0/16")
	fmt.Println(set, err)
	_, err = interception.ParsePrefixSet("10.0.0.0/8,")
	fmt.Println(err)
	// Output:
	// 10.0.0.0/8 <nil>
	// an element of the list is empty: remove the extra comma
}

func ExampleParsePortSet() {
	set, err := interception.ParsePortSet("8000-8999, 80")
	fmt.Println(set, set.Contains(8080), err)
	_, err = interception.ParsePortSet("http")
	fmt.Println(err)
	// Output:
	// 80,8000-8999 true <nil>
	// "http" is no port and no range of ports: write decimal numbers from 0 to 65535, such as 80,8000-8999
}
