// SPDX-License-Identifier: Apache-2.0

package filesystem_test

import (
	"testing"

	"github.com/meshcni/meshcni/internal/filesystem"
)

func TestOperationsAsText(t *testing.T) {
	t.Parallel()
	for operation, want := range map[filesystem.Operation]string{
		0: "no call", filesystem.Create: "create", filesystem.SyncDirectory: "sync directory",
		filesystem.SyncDirectory + 1: "operation 10", 255: "operation 255",
	} {
		if got := operation.String(); got != want {
			t.Errorf("operation %d is %q, want %q", uint8(operation), got, want)
		}
	}
}
