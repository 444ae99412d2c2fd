// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/meshcni/meshcni/interception/podsource"
)

func ExampleAPIServer() {
	source := podsource.APIServer{Kubeconfig: "/nowhere/istio-cni-kubeconfig"}
	_, err := source.Pod(context.Background(), podsource.Ref{Namespace: "shop", Name: "web-0"})

	var failure *podsource.Error
	if errors.As(err, &failure) {
		fmt.Println("problem:", failure.Problem())
		fmt.Println("remedy: ", failure.Remedy())
	}
	fmt.Println(errors.Is(err, podsource.ErrKubeconfig), errors.Is(err, fs.ErrNotExist))
	// Output:
	// problem: pod shop/web-0: kubeconfig cannot be used: stat /nowhere/istio-cni-kubeconfig: no such file or directory
	// remedy:  the node agent writes it: see whether its pod runs on this node and installs into this directory
	// true true
}

// A Pod that was read elsewhere, by kubectl or from a file.
func ExampleParsePod() {
	pod, err := podsource.ParsePod([]byte(`{
		"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cart-0"},
		"spec": {"containers": [{"name": "cart"}, {"name": "istio-proxy"}]}
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pod.Namespace, pod.Name, len(pod.Containers))
	_, err = podsource.ParsePod([]byte(`{"apiVersion": "apps/v1", "kind": "Deployment"}`))
	fmt.Println(err)
	// Output:
	// default cart-0 2
	// not a Pod, version v1: it is of kind "Deployment", version "apps/v1"
}
