// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
)

// A plan is applied to an open, and so verified, namespace. The host's namespace is refused.
func ExampleDataplane_Apply() {
	dataplane, err := iptables.New(iptables.Options{Flavour: iptables.NFT})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		output.Do("output.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "to the proxy")
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ns, err := interception.OpenNetns("/proc/1/ns/net", interception.NetnsOptions{})
	if errors.Is(err, interception.ErrHostNetns) {
		fmt.Println("not into the host's namespace")
		return
	}
	defer func() { _ = ns.Close() }()
	fmt.Println(dataplane.Apply(context.Background(), ns, plan))
	// Output: not into the host's namespace
}

// Supports needs no kernel: it reports what iptables cannot hold.
func ExampleDataplane_Supports() {
	dataplane, err := iptables.New(iptables.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		b.LiveSet("pods-of-the-mesh-on-one-node", interception.IPv4, "pods of the mesh")
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(dataplane.Supports(plan))
	// Output: plan of my-mesh: render plan for iptables: live set pods-of-the-mesh-on-one-node (pods of the mesh): not supported by iptables: owner and name have 35 bytes, and ipsets' names have room for 27
}
