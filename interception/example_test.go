// SPDX-License-Identifier: Apache-2.0

package interception_test

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// A plan written by hand. Build refuses what cannot work, with its place and the reason.
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

// Sets are values in a canonical form: nested and adjacent members are merged.
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
	// "http" is neither a port nor a range of ports: write decimal numbers from 0 to 65535, such as 80,8000-8999
}
