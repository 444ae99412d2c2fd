// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"fmt"

	"github.com/meshcni/meshcni/internal/testing/sample"
)

func Example() {
	a, b := sample.Redirect(sample.Seeded(7)), sample.Redirect(sample.Seeded(7))
	fmt.Println(a.Outbound.Include.Equal(b.Outbound.Include), a.Validate())
	// Output: true <nil>
}
