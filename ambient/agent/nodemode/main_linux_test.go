// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"os"
	"testing"

	"github.com/meshcni/meshcni/interception/dataplanetest"
)

func TestMain(m *testing.M) { os.Exit(dataplanetest.RunTests(m)) }
