// SPDX-License-Identifier: Apache-2.0

package sidecar_test

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// A custom mesh: its pods have a container "mesh-proxy", and settings below config.mesh.example/. A
// real mesh calls Validate in a test.
func ExampleDialect() {
	const prefix = "config.mesh.example/"
	dialect := sidecar.Dialect{
		Name:       "mesh.example",
		Membership: sidecar.Membership{ProxyContainer: "mesh-proxy", RuleContainer: "mesh-init"},
		Base: sidecar.Redirect{ // what no pod can change
			Proxy:   sidecar.Proxy{InboundPort: 4143, OutboundPort: 4140},
			Inbound: sidecar.Inbound{Include: interception.AllPorts()},
			Outbound: sidecar.Outbound{
				Include:  interception.AllPrefixes(),
				Loopback: interception.Prefixes(netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")),
			},
		},
		Fields: []sidecar.Field{
			{
				Parameter: sidecar.ParameterProxyUIDs, Kind: interception.SourceField, Keys: []string{"runAsUser"}, Default: "2102",
				Set: func(r *sidecar.Redirect, value string) (err error) {
					r.Proxy.UIDs, err = interception.ParseUIDSet(value)
					return err
				},
			},
			{
				Parameter: sidecar.ParameterInboundExclude, Kind: interception.SourceAnnotation,
				Keys: []string{prefix + "skip-inbound-ports"}, Default: "4190-4191",
				Set: func(r *sidecar.Redirect, value string) (err error) {
					r.Inbound.Exclude, err = interception.ParsePortSet(value)
					return err
				},
			},
			{
				Parameter: sidecar.ParameterOutboundExclude, Kind: interception.SourceAnnotation,
				Keys: []string{prefix + "skip-subnets"},
				Set: func(r *sidecar.Redirect, value string) (err error) {
					r.Outbound.Exclude, err = interception.ParsePrefixSet(value)
					return err
				},
			},
		},
		Prefixes: []string{prefix},
	}
	pod := interception.Pod{
		Namespace: "shop", Name: "cart-0",
		Annotations: map[string]string{prefix + "skip-inbound-ports": "25, 8000-8999", prefix + "skip-subnet": "10.0.0.0/8"},
		Containers:  []interception.Container{{Name: "app"}, {Name: "mesh-proxy"}},
	}
	mesh := sidecar.Mesh{Dialect: dialect, Owner: "example-mesh"}
	fmt.Println(mesh.Validate(), mesh.Decide(pod))
	planned, err := mesh.Plan(pod, interception.Facts{})
	for _, warning := range planned.Warnings {
		fmt.Println(warning)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	for position, rule := range planned.Plan.Rules() {
		fmt.Printf("%s: %s -> %s\n", position, rule.Match, rule.Action)
	}
	// Output:
	// <nil> in-mesh
	// annotation config.mesh.example/skip-subnet="10.0.0.0/8": the mesh.example dialect knows no such key, and it has no effect: check its spelling
	// nat/inbound[0]: tcp dport 25,8000-8999 -> return
	// nat/inbound[1]: tcp -> redirect to :4143
	// nat/output[0]: out lo dst != 127.0.0.0/8 tcp uid 2102 -> redirect to :4143
	// nat/output[1]: out lo uid != 2102 -> return
	// nat/output[2]: uid 2102 -> return
	// nat/output[3]: dst 127.0.0.0/8 -> return
	// nat/output[4]: tcp -> redirect to :4140
}
