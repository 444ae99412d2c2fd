// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"

	"github.com/meshcni/meshcni/examples/e2e/chart"
)

func Example() {
	c, err := chart.Load("../../charts/meshcni")
	if err != nil {
		fmt.Println(err)
		return
	}
	rendering, err := c.Render(chart.Release{Name: "istio-cni", Namespace: "istio-system"}, chart.Values{"watchPods": false})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, permission := range rendering.Permissions() {
		fmt.Println(permission)
	}
	// Output:
	// ClusterRole istio-cni: get pods
	// Role istio-cni: get apps/daemonsets istio-cni-node
	// Role istio-cni: get namespaces istio-system
	// Role istio-cni-uninstall: get apps/daemonsets istio-cni-node
	// Role istio-cni-uninstall: delete apps/daemonsets istio-cni-node
}
