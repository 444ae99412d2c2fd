// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"k8s.io/client-go/rest"

	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

// A pod whose validator failed is labelled. In a cluster, the configuration is that of
// rest.InClusterConfig.
func Example() {
	cluster := fakecluster.New()
	failed := int32(126)
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "cart-0", UID: "0b9d", Node: "node-1", Validator: &failed})
	server := httptest.NewServer(cluster.Handler())
	defer server.Close()
	defer cluster.Refuse(http.StatusServiceUnavailable)

	client, err := controller.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	pods, err := client.Informer("node-1", controller.Selection{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	c, err := controller.New(controller.Options{
		Cluster: client, Informer: pods,
		Criteria: repair.Criteria{
			Mesh: sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"}, Node: "node-1",
			Validators: []repair.Validator{repair.IstioValidator()},
		},
		Policy: repair.Policy{
			Rules: []repair.Rule{{Do: []repair.Mode{repair.ModeLabel}}}, Label: repair.Label{Key: "mesh.example/uncaptured", Value: "true"},
		},
		Limits: repair.DefaultLimits(),
		OnOutcome: func(o controller.Outcome) {
			fmt.Println(o.Result, o.Action)
			end()
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	go pods.RunWithContext(ctx)
	fmt.Println(c.Run(ctx))
	// Output:
	// success label shop/cart-0: broken (validator); rule 0
	// <nil>
}
