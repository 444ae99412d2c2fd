// SPDX-License-Identifier: Apache-2.0

package upkeep_test

import (
	"fmt"
	"time"

	"github.com/meshcni/meshcni/internal/upkeep"
)

func ExampleSeries() {
	failures := upkeep.Failures()
	now := time.Now()
	for range 3 {
		pause := failures.Next(now)
		fmt.Println(pause)
		now = now.Add(pause)
	}
	fmt.Println("failures:", failures.Count())
	// Output:
	// 1s
	// 2s
	// 4s
	// failures: 3
}
