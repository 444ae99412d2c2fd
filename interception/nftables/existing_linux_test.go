// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception/dataplanetest"
)

func TestExistingConnections(t *testing.T) {
	t.Parallel()
	dataplanetest.Existing(t, dataplane(t))
}

func TestDraining(t *testing.T) {
	t.Parallel()
	dataplanetest.Draining(t, dataplane(t))
}
