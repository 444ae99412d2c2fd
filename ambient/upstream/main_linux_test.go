// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"os"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
)

func TestMain(m *testing.M) { os.Exit(dataplanetest.RunTests(m)) }

// backends returns the dataplanes that a node may have.
func backends(t *testing.T) map[string]interception.Dataplane {
	t.Helper()
	native, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]interception.Dataplane{"nftables": native}
	for _, flavour := range []iptables.Flavour{iptables.Legacy, iptables.NFT} {
		backend, err := iptables.New(iptables.Options{Flavour: flavour})
		if err != nil {
			t.Fatal(err)
		}
		all["iptables "+string(flavour)] = backend
	}
	return all
}
