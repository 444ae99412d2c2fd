// SPDX-License-Identifier: Apache-2.0

package sidecar_test

import (
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
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
	mesh := sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "my-mesh"}
	fmt.Println(mesh.Decide(pod))
	planned, err := mesh.Plan(pod, interception.Facts{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for position, rule := range planned.Plan.Rules() {
		fmt.Printf("%s: %s -> %s\n", position, rule.Match, rule.Action)
	}
	fmt.Println(len(planned.Warnings), "warnings")
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

// A bad annotation is an error that names key, value and reason.
func ExampleDialect_Parse() {
	_, _, err := sidecar.Istio().Parse(interception.Pod{Annotations: map[string]string{
		"traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.0.0.1",
	}})
	fmt.Println(err)

	_, warnings, _ := sidecar.Istio().Parse(interception.Pod{Annotations: map[string]string{
		"traffic.sidecar.istio.io/excludeInboundPort": "9090",
	}})
	fmt.Println(warnings[0])
	// Output:
	// invalid annotation traffic.sidecar.istio.io/excludeOutboundIPRanges="10.0.0.1": "10.0.0.1" is an address: write it as the prefix 10.0.0.1/32
	// annotation traffic.sidecar.istio.io/excludeInboundPort="9090": the istio dialect knows no such key, and it has no effect: check its spelling
}
