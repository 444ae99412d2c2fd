// SPDX-License-Identifier: Apache-2.0

package product_test

import (
	"fmt"

	"github.com/meshcni/meshcni/examples/e2e/internal/product"
)

// The layout of the image.
func ExampleImage() {
	for _, file := range product.Image("arm64", "bin/linux-arm64", "v1").Files {
		fmt.Println(file.Path)
	}
	// Output:
	// /usr/local/bin/install-cni
	// /usr/local/bin/node-watcher
	// /usr/local/bin/node-ambient
	// /usr/local/bin/mesh-validator
	// /opt/cni/bin/istio-cni
	// /opt/cni/bin/istio-cni-iptables
}
