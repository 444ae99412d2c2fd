// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

func ExampleMermaid() {
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		output.Do("output.proxy", interception.Match{UID: interception.Is(interception.UIDs(1337))}, interception.Return{}, "the proxy is free")
		output.Do("output.admin", interception.Match{L4: interception.TCP().To(interception.Ports(15000))}, interception.Return{}, "not for a proxy")
		output.Do("output.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "the rest goes to the proxy")
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(render.Mermaid(plan))
	// Output:
	// flowchart LR
	//   n1(["nat output"])
	//   n2["nat/output"]
	//   n1 -- "tcp" --> n2
	//   n3{{"nat: return"}}
	//   n4{{"nat: redirect to :15001"}}
	//   n2 -- "1. uid 1337<br>2. tcp dport 15000" --> n3
	//   n2 -- "3. tcp" --> n4
}

func TestMermaid(t *testing.T) {
	t.Parallel()
	plan := build(t, func(b *interception.Builder) {
		input := b.Filter("input")
		input.Entry(interception.Input, interception.Match{}, "all that comes")
		input.Entry(interception.Forward, interception.Match{}, "all that passes")
		refuse := b.Filter("refuse")
		input.Call("input.refuse", interception.Match{In: interception.Is(interception.Interfaces("eth0"))}, refuse, "from outside")
		refuse.Do("refuse.log", interception.Match{}, interception.Log{Prefix: "a 1 "}, "seen")
		refuse.Do("refuse.all", interception.Match{}, interception.Drop{}, "gone")
		b.NAT("nothing")
	})
	const want = `flowchart LR
  n1(["filter input"])
  n2["filter/input"]
  n1 -- "any" --> n2
  n3(["filter forward"])
  n3 -- "any" --> n2
  n4["filter/refuse"]
  n2 -- "1. in eth0" --> n4
  n5{{"filter: log #quot;a 1 #quot;"}}
  n6{{"filter: drop"}}
  n4 -- "1. any" --> n5
  n4 -- "2. any" --> n6
  n7["nat/nothing"]
`
	if diff := cmp.Diff(want, render.Mermaid(plan)); diff != "" {
		t.Error(diff)
	}
}
