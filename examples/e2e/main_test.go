// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// suite is the cluster that all scenarios share.
var suite *scenario.Suite

func TestMain(m *testing.M) { os.Exit(scenario.Main(m, &suite)) }
