// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

// smallPlan captures TCP except to two subnets.
func smallPlan() (*interception.Plan, error) {
	return interception.Build("my-mesh", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		near := b.Set("near", interception.Prefixes(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8")), "near destinations")
		output.Do("output.near", interception.Match{DstSet: interception.Is(near)}, interception.Return{}, "near destinations")
		output.Do("output.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001},
			"all other connections go to the proxy")
	})
}

func ExampleIPTablesRestore() {
	plan, err := smallPlan()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		text, err := render.IPTablesRestore(plan, family)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s:\n%s", family, text)
	}
	// Output:
	// v4:
	// *nat
	// -N MY-MESH_OUTPUT
	// -A MY-MESH_OUTPUT -d 10.0.0.0/8 -m comment --comment "output.near 3f6487df near destinations" -j RETURN
	// -A MY-MESH_OUTPUT -d 127.0.0.0/8 -m comment --comment "output.near 3f6487df near destinations" -j RETURN
	// -A MY-MESH_OUTPUT -p tcp -m comment --comment "output.capture 7a0df89f all other connections go to the proxy" -j REDIRECT --to-ports 15001
	// -A OUTPUT -p tcp -m comment --comment "nat.output.output d46e2b70 connections from the pod" -j MY-MESH_OUTPUT
	// COMMIT
	// v6:
	// *nat
	// -N MY-MESH_OUTPUT
	// -A MY-MESH_OUTPUT -p tcp -m comment --comment "output.capture 7a0df89f all other connections go to the proxy" -j REDIRECT --to-ports 15001
	// -A OUTPUT -p tcp -m comment --comment "nat.output.output d46e2b70 connections from the pod" -j MY-MESH_OUTPUT
	// COMMIT
}

func ExampleTable() {
	plan, err := smallPlan()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(render.Table(plan))
	// Output:
	// plan my-mesh, fingerprint 737212045de117bd
	//
	//   OBJECT  WHAT                               WHY
	//   @near   set of v4: 10.0.0.0/8,127.0.0.0/8  near destinations
	//
	// nat, hook output
	//   ENTRY              MATCH  ACTION       WHY
	//   nat.output.output  tcp    jump output  connections from the pod
	//
	// nat, chain output
	//   RULE            MATCH      ACTION              WHY
	//   output.near     dst @near  return              near destinations
	//   output.capture  tcp        redirect to :15001  all other connections go to the proxy
}
