// SPDX-License-Identifier: Apache-2.0

package podsource_test

import (
	"os"
	"testing"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// Sockets of other users need root.
func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }
