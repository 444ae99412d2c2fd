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
