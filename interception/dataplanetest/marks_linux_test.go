// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/trace"
)

// TestMarkedSockets has sockets whose marks lead to the routes of TPROXY: what they send is local, wherever it goes.
func TestMarkedSockets(t *testing.T) {
	t.Parallel()
	plan := sidecar(t, interception.Facts{IPv6: true}, func(r *interception.Redirect) { r.Mode = interception.ModeTProxy })
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")},
		Ports:     []uint16{8080}, ProxyPorts: []uint16{15001, 15006},
	})
	if err := pod.Apply(t.Context(), backends(t)[0].dataplane, plan); err != nil {
		t.Fatal(err)
	}
	world, err := pod.World(plan)
	if err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"tcp", "udp"} {
		for _, mark := range []string{"", "mark 0x539", "mark 0x53a"} {
			for _, transparent := range []string{"", "transparent"} {
				for _, way := range []string{
					"> 198.51.100.7:8080", "10.244.0.2:0 > 198.51.100.7:8080", "127.0.0.1:0 > 198.51.100.7:8080",
					"> 198.51.100.7:81", "10.244.0.2:0 > 198.51.100.7:81",
					"> 10.244.0.2:8080", "> 127.0.0.1:8080", "> 127.0.0.5:8080", "10.244.0.2:0 > 10.244.0.2:8080",
					"> [2001:db8:7::7]:8080", "[fd00:10:244::2]:0 > [2001:db8:7::7]:8080", "[::1]:0 > [2001:db8:7::7]:8080",
					"> [2001:db8:7::7]:81", "[fd00:10:244::2]:0 > [2001:db8:7::7]:81",
					"> [fd00:10:244::2]:8080", "> [::1]:8080", "[fd00:10:244::2]:0 > [fd00:10:244::2]:8080",
				} {
					line := protocol + " uid 0 gid 0 " + mark + " " + transparent + " " + way
					t.Run(line, func(t *testing.T) {
						t.Parallel()
						packet, err := trace.ParsePacket(line)
						if err != nil {
							t.Fatal(err)
						}
						c, err := pod.Compare(t.Context(), world, packet)
						if err != nil || c.Disagreement != "" {
							t.Errorf("%v\n%s", err, c.Report())
						}
					})
				}
			}
		}
	}
}
