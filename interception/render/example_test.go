// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

func ExampleNFT() {
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
	script, err := render.NFT(plan)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s", script)
	// Output:
	// table inet my-mesh
	// delete table inet my-mesh
	// table inet my-mesh {
	// 	chain hook.nat.output {
	// 		type nat hook output priority -100; policy accept;
	// 		meta l4proto tcp jump nat-output comment "nat.output.output d46e2b70 connections from the pod"
	// 	}
	//
	// 	chain nat-output {
	// 		meta skuid 1337 return comment "output.proxy 5be6a183 the proxy goes out by itself"
	// 		meta l4proto tcp redirect to :15001 comment "output.capture 7a0df89f all other connections go to the proxy"
	// 	}
	// }
}
