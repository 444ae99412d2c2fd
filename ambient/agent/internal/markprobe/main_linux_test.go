// SPDX-License-Identifier: Apache-2.0

package markprobe_test

import (
	"os"
	"testing"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }
