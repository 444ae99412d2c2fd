// SPDX-License-Identifier: Apache-2.0

package collision_test

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/collision"
	"github.com/meshcni/meshcni/interception"
)

// Which numbers does capture on this node share with another program?
func ExampleFind() {
	proxy := ambient.NodeProxy{Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.14")}, Namespace: "proxy"}
	numbers := ambient.IstioNodeNumbers()
	node := collision.Standing{
		PolicyRules: []interception.PolicyRule{{
			Family: interception.IPv4, Priority: 9, Mark: interception.MarkBits{Value: 0x200, Mask: 0xf00}, Table: 2004,
		}},
	}
	for {
		plan, err := ambient.NodePlan(proxy, numbers, interception.Facts{}, "my-ambient")
		if err != nil {
			fmt.Println(err)
			return
		}
		shared := collision.Find(plan, node)
		if len(shared) == 0 {
			fmt.Println("free")
			return
		}
		for _, c := range shared {
			fmt.Println(c)
		}
		for _, mark := range []*interception.MarkBits{&numbers.Outbound.Mark, &numbers.Inbound.Mark} {
			*mark = interception.MarkBits{Value: mark.Value << 12, Mask: mark.Mask << 12}
		}
	}
	// Output:
	// packet mark 0x100/0x120 is used by policy rule v4 priority 9 mark 0x200/0xf00 table 2004
	// packet mark 0x800/0x820 is used by policy rule v4 priority 9 mark 0x200/0xf00 table 2004
	// free
}
