// SPDX-License-Identifier: Apache-2.0

package fake_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
)

// capture is the code under test: it tries twice.
func capture(ctx context.Context, dp interception.Dataplane, ns *interception.Netns, p *interception.Plan) error {
	if dp.Apply(ctx, ns, p) == nil {
		return nil
	}
	return dp.Apply(ctx, ns, p)
}

// A unit test of code that uses a dataplane: the first Apply fails, and the code tries again.
func Example() {
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "what the pod connects to")
		output.Do("output.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "to the proxy")
	})
	if err != nil {
		panic(err)
	}
	dp := fake.New(fake.Options{Before: fake.Nth(fake.Apply, 1, errors.New("the kernel is busy"))})
	ns := dp.Netns("pod")

	fmt.Println("error:", capture(context.Background(), dp, ns, plan))
	for _, call := range dp.Calls() {
		fmt.Println(call)
	}
	fmt.Print(dp.Dump(ns))
	// Output:
	// error: <nil>
	// Apply 1: my-mesh in net:[1]: the kernel is busy
	// Apply 2: my-mesh in net:[1]
	// plan my-mesh
	// table nat
	//   hook output: tcp -> jump output  # nat.output.output: what the pod connects to
	//   chain output
	//     tcp -> redirect to :15001  # output.capture: to the proxy
}

// Test code for a limited dataplane with a fake that has the same limits.
func ExampleLacks() {
	dp := fake.New(fake.Options{Refuse: fake.Lacks[interception.Sysctl]})
	plan := &interception.Plan{Owner: "my-mesh", Objects: []interception.Object{
		interception.Sysctl{ID: "sysctl.localnet", Key: "ipv4/conf/all/route_localnet", Value: 1, Why: "loopback addresses are routed"},
	}}
	fmt.Println(dp.Supports(plan))
	// Output: sysctl.localnet: not supported: this dataplane has no interception.Sysctl
}

// A program that edits a live set keeps what others have taken over meanwhile.
func ExampleDataplane_UpdateSet() {
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		pods := b.LiveAddresses("pods", interception.IPv4, "pods of this node")
		probes := b.NAT("probes")
		probes.Entry(interception.Postrouting, interception.Match{}, "what the node sends")
		probes.Do("probes.pods", interception.Match{DstSet: interception.Is(pods)}, interception.Return{}, "as it is")
	})
	if err != nil {
		panic(err)
	}
	ctx, dp := context.Background(), fake.New(fake.Options{})
	host, address := dp.Netns("host"), netip.MustParseAddr("10.0.0.7")
	for _, edit := range []interception.SetEdit{
		{Add: map[netip.Addr]string{address: "pod a"}},
		{Add: map[netip.Addr]string{address: "pod b"}},    // which has got the address
		{Remove: map[netip.Addr]string{address: "pod a"}}, // which ends late
	} {
		err = errors.Join(err, dp.Apply(ctx, host, plan), dp.UpdateSet(ctx, host, "my-mesh", "pods", edit))
	}
	state, failed := dp.Observe(ctx, host, "my-mesh")
	fmt.Println(state.Owners["pods"], err, failed)
	// Output: map[10.0.0.7:pod b] <nil> <nil>
}
