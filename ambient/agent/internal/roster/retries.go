// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"time"

	"github.com/meshcni/meshcni/internal/upkeep"
)

// Retries returns the pauses between failed attempts at a pod, or at the node's proxy: 50 ms, then
// twice as long each time up to 10 s. A minute without a failure begins a new series.
func Retries() upkeep.Series {
	return upkeep.Series{First: 50 * time.Millisecond, Most: 10 * time.Second, Calm: time.Minute}
}
