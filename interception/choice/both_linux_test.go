// SPDX-License-Identifier: Apache-2.0

package choice_test

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/backend"
)

// TestBothStand has two dataplanes' rules in place, as during a takeover. Connections reach the
// proxy and are answered. Older ones survive, even after the first dataplane's rules are removed.
func TestBothStand(t *testing.T) {
	t.Parallel()
	switches(t, func(t *testing.T, from, to string) {
		t.Helper()
		native, err := nftables.New(nftables.Options{})
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]backend.Successor{"nftables": native}
		for _, flavour := range []iptables.Flavour{iptables.Legacy, iptables.NFT} {
			if all["iptables "+string(flavour)], err = iptables.New(iptables.Options{Flavour: flavour}); err != nil {
				t.Fatal(err)
			}
		}
		for _, modes := range [][2]sidecar.Mode{
			{sidecar.ModeTProxy, sidecar.ModeTProxy},
			{sidecar.ModeRedirect, sidecar.ModeTProxy},
			{sidecar.ModeTProxy, sidecar.ModeRedirect},
			{sidecar.ModeRedirect, sidecar.ModeRedirect},
		} {
			t.Run(modes[0].String()+" to "+modes[1].String(), func(t *testing.T) {
				t.Parallel()
				bothStand(t, all[from], all[to], modes)
			})
		}
	})
}

func bothStand(t *testing.T, from, to backend.Successor, modes [2]sidecar.Mode) {
	t.Helper()
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{
		Ports: []uint16{8080}, ProxyPorts: []uint16{15001, 15006}, ProxyUID: 1337, ProxyGID: 1337,
	})
	ns, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	var living []*dataplanetest.Connection
	apply := func(d interception.Dataplane, mode sidecar.Mode) {
		redirect, _, err := sidecar.Istio().Parse(interception.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		redirect.Mode = mode
		plan, err := sidecar.Plan(redirect, interception.Facts{IPv6: true}, "mesh-test")
		if err != nil {
			t.Fatal(err)
		}
		if err := pod.Apply(t.Context(), d, plan); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		for _, c := range living {
			for _, speaker := range []dataplanetest.Side{dataplanetest.Opener, dataplanetest.Taker} {
				if verdict, err := c.Say(t.Context(), speaker); err != nil || verdict != dataplanetest.Accepted {
					t.Errorf("%s, an older connection, %s: %s, %s: %v, %v", when, c.Probe, c.Observation, speaker, verdict, err)
				}
			}
		}
		for _, to := range []string{"10.244.1.10:8080", "[fd00:10:244:1::a]:8080"} {
			c, err := pod.Connect(t.Context(), dataplanetest.Probe{From: dataplanetest.Elsewhere, Dst: netip.MustParseAddrPort(to)})
			if err != nil {
				t.Errorf("%s: %v", when, err)
				continue
			}
			t.Cleanup(func() { _ = c.Close() })
			if c.Observation.Port != 15006 {
				t.Errorf("%s: got %s", when, c.Observation)
			}
			living = append(living, c)
		}
	}
	apply(from, modes[0])
	check("under the first")
	apply(to, modes[1])
	check("under both")
	if err := from.RemoveRules(t.Context(), ns, "mesh-test"); err != nil {
		t.Fatal(err)
	}
	check("under the second")
}
