// SPDX-License-Identifier: Apache-2.0

package choice_test

import (
	"context"
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
)

// A node agent asks once, before any pod, and writes the name into its plugin's configuration. Fake
// dataplanes replace those of package standard here, and the first one's kernel has no TPROXY.
func Example() {
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		inbound := b.Mangle("inbound")
		inbound.Entry(interception.Prerouting, interception.Match{L4: interception.TCP()}, "what comes to the pod")
		inbound.Do("inbound.proxy", interception.Match{L4: interception.TCP()},
			interception.TProxyTo{Port: 15006, Mark: interception.WholeMark(1337)}, "to the proxy")
	})
	if err != nil {
		panic(err)
	}
	first := fake.New(fake.Options{Refuse: fake.Lacks[interception.TProxyTo]})
	second := fake.New(fake.Options{})
	scratch := func() (*interception.Netns, error) { return second.Netns("scratch"), nil }

	chosen, err := choice.Choose(context.Background(), plan, choice.Options{Scratch: scratch},
		choice.Candidate{Name: choice.NFTables, Dataplane: first}, choice.Candidate{Name: choice.IPTables, Dataplane: second})
	fmt.Println(chosen.Name, err)
	for _, r := range chosen.Rejected {
		fmt.Println("not", r)
	}
	// Output:
	// iptables <nil>
	// not nftables: mangle/inbound[0] inbound.proxy: not supported: this dataplane has no interception.TProxyTo
}
