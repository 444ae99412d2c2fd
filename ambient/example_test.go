// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"fmt"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
)

// Which connections of a pod does the node's proxy get, and why?
func Example() {
	pod := ambient.Pod{Pod: interception.Pod{
		Namespace: "shop", Name: "cart-0", UID: "7c1e",
		Annotations: map[string]string{"traffic.istio.io/excludeOutboundPorts": "5432"},
	}}
	namespace := ambient.Namespace{Name: "shop", Labels: map[string]string{"istio.io/dataplane-mode": "ambient"}}
	fmt.Println(ambient.Enrolled(pod, namespace, ambient.IstioPolicy()))

	overrides, warnings, err := ambient.Istio().Parse(pod.Pod, ambient.DefaultOverrides(false))
	if err != nil || len(warnings) > 0 {
		fmt.Println(warnings, err)
		return
	}
	plan, err := ambient.PodPlan(overrides, ambient.IstioNumbers(), interception.Facts{}, "my-ambient")
	if err != nil {
		fmt.Println(err)
		return
	}
	query, err := proof.ParseQuery("tcp to 192.0.2.1 out")
	if err != nil {
		fmt.Println(err)
		return
	}
	explanation, err := proof.Explain(plan, query, proof.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(explanation)
	// Output:
	// selected (selector 2)
	// DIRECTION  WHEN                             EFFECT                        RULE                                  WHY
	// out        v4 tcp and tcp dport 5432        left alone                    nat/output[1] outbound.exclude.ports  excluded outbound ports
	//                                                                                                                   from annotation traffic.istio.io/excludeOutboundPorts="5432"
	// out        v4 tcp and tcp mark 0x111/0xfff  left alone                    nat/output[2] outbound.reply          replies to the proxy
	// out        v4 tcp and mark 0x539/0xfff      left alone                    nat/output[4] outbound.proxy          connections of the proxy itself are never captured
	// out        v4 tcp                           captured: redirect to :15001  nat/output[6] outbound.capture        other connections go to the proxy
}
