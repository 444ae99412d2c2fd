// SPDX-License-Identifier: Apache-2.0

package programs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/examples/e2e/internal/programs"
)

// Kubernetes is built when it is first needed.
func ExampleModule_Cached() {
	cache, err := os.MkdirTemp("", "cache-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(cache) }()
	directory, built, err := programs.Kubernetes("../..").Cached(context.Background(), cache)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(filepath.Base(directory)), built)
	// Output: 23 false
}
