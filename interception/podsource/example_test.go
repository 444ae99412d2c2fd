// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/sidecar"
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
	// problem: pod shop/web-0: kubeconfig cannot be used: open /nowhere/istio-cni-kubeconfig: no such file or directory
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

func ExampleRuntimeConfig() {
	// What a runtime passes in the plugin's configuration, under "runtimeConfig".
	runtime := podsource.RuntimeConfig{PodAnnotations: map[string]string{"kubernetes.io/config.source": "api"}}
	mesh := sidecar.Mesh{Dialect: sidecar.Istio(), Owner: "istio-cni"}
	decision, decided := mesh.ByAnnotations("shop", "web-0", runtime.PodAnnotations)
	fmt.Println(decided, decision)
	// Output: true not-injected (no annotation sidecar.istio.io/status)
}

func ExampleChain() {
	const runDir = "/nowhere"
	chain := podsource.Chain{
		Timeout: 10 * time.Second,
		Links: []podsource.Link{
			{Name: "agent", Source: podsource.Agent{RunDir: runDir}, Timeout: 2 * time.Second},
			{Name: "api-server", Source: podsource.APIServer{Kubeconfig: runDir + "/istio-cni-kubeconfig"}},
		},
	}
	_, err := chain.Ask(context.Background(), podsource.Ref{Namespace: "shop", Name: "web-0"})
	var failure *podsource.ChainError
	if errors.As(err, &failure) {
		for _, link := range failure.Failures {
			fmt.Println(link.Name, errors.Is(link, podsource.ErrUnreachable), errors.Is(link, podsource.ErrKubeconfig))
		}
	}
	// Output:
	// agent true false
	// api-server false true
}
