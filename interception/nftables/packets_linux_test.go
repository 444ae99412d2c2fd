// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"testing"

	"github.com/meshcni/meshcni/internal/goldenpackets"
)

func TestGoldenPackets(t *testing.T) {
	t.Parallel()
	goldenpackets.Compare(t, dataplane(t), "../testdata")
}
