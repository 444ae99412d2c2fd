// SPDX-License-Identifier: Apache-2.0

package footprint_test

import (
	"fmt"

	"github.com/meshcni/meshcni/internal/footprint"
)

func ExampleTrim() {
	fmt.Println(footprint.Trim())
	// Output: <nil>
}
