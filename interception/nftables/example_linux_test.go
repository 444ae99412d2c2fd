// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
)

// A plan is applied to an open, and so verified, namespace. The host's namespace is refused.
func ExampleDataplane_Apply() {
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		output.Do("output.proxy", interception.Match{UID: interception.Is(interception.UIDs(1337))}, interception.Return{},
			"the proxy goes out by itself")
		output.Do("output.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001},
			"all other connections go to the proxy")
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := apply(context.Background(), "/proc/1/ns/net", plan); errors.Is(err, interception.ErrHostNetns) {
		fmt.Println("not into the host's namespace")
	}
	// Output: not into the host's namespace
}

// apply puts a plan into the network namespace at a path, such as the CNI_NETNS of a pod.
func apply(ctx context.Context, path string, plan *interception.Plan) error {
	ns, err := interception.OpenNetns(path, interception.NetnsOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	dataplane, err := nftables.New(nftables.Options{})
	if err != nil {
		return err
	}
	return dataplane.Apply(ctx, ns, plan)
}
