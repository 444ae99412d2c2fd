// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"fmt"

	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
)

func ExampleState() {
	state := health.NewState("binaries", "config")
	state.Set("binaries", "")
	fmt.Println(state.Reasons())
	state.Set("config", "")
	fmt.Println(state.Reasons())
	// Output:
	// [config: starting]
	// []
}
