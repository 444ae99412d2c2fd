// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/goldenpackets"
)

func TestGoldenPackets(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		goldenpackets.Compare(t, dataplane(t, iptables.Options{Flavour: flavour}), "../testdata")
	})
}
