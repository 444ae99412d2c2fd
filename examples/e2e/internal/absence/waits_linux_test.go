// SPDX-License-Identifier: Apache-2.0

package absence_test

import (
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/absence"
)

// TestReadWaits reads the threads of this process, and of a process that does not exist.
func TestReadWaits(t *testing.T) {
	t.Parallel()
	if waits, err := absence.ReadWaits("/proc/self"); err != nil || len(waits) == 0 {
		t.Errorf("got %v, %v", waits, err)
	}
	if _, err := absence.ReadWaits("/proc/none"); err == nil {
		t.Error("there is no such process")
	}
}
