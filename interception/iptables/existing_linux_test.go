// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
)

func TestExistingConnections(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		dataplanetest.Existing(t, dataplane(t, iptables.Options{Flavour: flavour}))
	})
}

func TestDraining(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		dataplanetest.Draining(t, dataplane(t, iptables.Options{Flavour: flavour}))
	})
}
