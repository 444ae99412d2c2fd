// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"k8s.io/client-go/rest"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/controller"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// A pod of the node is told of, and annotated. In a cluster, the configuration is that of
// rest.InClusterConfig.
func Example() {
	cluster := fakecluster.New()
	cluster.PutNamespace("shop", map[string]string{"istio.io/dataplane-mode": "ambient"})
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "cart-0", UID: "0b9d", Node: "node-1"})
	server := httptest.NewServer(cluster.Handler())
	defer server.Close()
	defer cluster.Refuse(http.StatusServiceUnavailable)

	config, vocabulary := &rest.Config{Host: server.URL}, ambient.Istio()
	pods, err := controller.NewInformer(config, "node-1", controller.Names(ambient.IstioPolicy(), vocabulary)...)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := controller.New(controller.Options{Config: config, Pods: pods, Annotation: vocabulary.Status})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	go pods.RunWithContext(ctx)
	go c.Run(ctx) //nolint:errcheck // its error would be about an informer that has ended
	change, err := c.Next(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	cart := change.Pods[0]
	fmt.Println(cart.Name, cart.Phase, cart.Addresses, change.Namespaces[0].Labels, change.Complete)
	err = c.Annotate(ctx, cart.Pod, ambient.StatusEnabled)
	annotated, _ := cluster.Pod("shop", "cart-0")
	fmt.Println(annotated.Annotations, err)
	// Output:
	// cart-0 Running [10.244.0.7] map[istio.io/dataplane-mode:ambient] true
	// map[ambient.istio.io/redirection:enabled] <nil>
}
