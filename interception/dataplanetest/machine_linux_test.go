// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

// machinePackets are first packets of connections of a pod with a machine at vm0, and where they
// have to arrive: a port of the pod, or 0 for elsewhere.
type machinePackets map[string]uint16

// TestMachine has a virtual machine, or the pod's own containers, at a link of a pod in TPROXY
// mode: its connections beyond the captured prefixes are forwarded, and the answers reach it, while
// connections from peers to the pod are captured.
func TestMachine(t *testing.T) {
	t.Parallel()
	peers := machinePackets{
		"tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8080":           15006,
		"tcp in eth0 198.51.100.9:40000 > 10.244.0.2:8080":        15006,
		"tcp in eth0 [2001:db8::9]:40000 > [fd00:10:244::2]:8080": 15006,
		"tcp in eth0 192.0.2.9:40000 > 10.244.0.2:15008":          15008,
		"tcp uid 1000 gid 1000 > 203.0.113.7:443":                 0,
		"tcp uid 1337 gid 1337 > 198.51.100.7:443":                0,
		"tcp uid 1337 gid 1337 > [2600:1f00::9]:443":              0,
		"tcp uid 1337 gid 1337 > 10.244.0.2:8080":                 15006,
		"tcp uid 1000 gid 1000 > 10.244.0.2:8080":                 8080,
		"tcp uid 1337 gid 1337 127.0.0.6:0 > 10.244.0.2:8080":     8080,
		"tcp uid 1337 gid 1337 mark 0x539 > 10.244.0.2:8080":      8080,
		"tcp uid 1000 gid 1000 > 192.0.2.7:443":                   15001,
		"udp uid 1000 gid 1000 > 198.51.100.7:123":                0,
		"tcp in vm0 10.0.2.2:40000 > 198.51.100.7:443":            0,
		"tcp in vm0 [fd10:0:2::2]:40000 > [2600:1f00::9]:443":     0,
		"udp in vm0 10.0.2.2:40000 > 198.51.100.7:53":             0,
		"udp in vm0 [fd10:0:2::2]:40000 > [2600:1f00::9]:53":      0,
		"tcp in vm0 10.0.2.2:40000 > 203.0.113.9:8080":            0,
	}
	narrowed := interception.Prefixes(netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32"))
	vm0 := interception.Interfaces("vm0")
	for name, c := range map[string]struct {
		change func(*sidecar.Redirect)
		extra  machinePackets
	}{
		"rerouted": {
			func(r *sidecar.Redirect) { r.Interfaces.Reroute = vm0 },
			machinePackets{
				"tcp in vm0 10.0.2.2:40000 > 192.0.2.7:443":            15001,
				"tcp in vm0 [fd10:0:2::2]:40000 > [2001:db8:7::7]:443": 15001,
			},
		},
		"excluded": {
			func(r *sidecar.Redirect) { r.Interfaces.Exclude = vm0 },
			machinePackets{
				"tcp in vm0 10.0.2.2:40000 > 192.0.2.7:443":            0,
				"tcp in vm0 [fd10:0:2::2]:40000 > [2001:db8:7::7]:443": 0,
			},
		},
		"rerouted, some inbound ports": {
			func(r *sidecar.Redirect) {
				r.Interfaces.Reroute = vm0
				r.Inbound.Include = interception.Ports(8080).Union(interception.PortRange(1024, 65535))
			}, nil,
		},
	} {
		plan := sidecarPlan(t, interception.Facts{IPv6: true}, func(r *sidecar.Redirect) {
			r.Mode, r.Outbound.Include = sidecar.ModeTProxy, narrowed
			c.change(r)
		})
		for _, b := range backends(t) {
			t.Run(name+" "+b.name, func(t *testing.T) {
				t.Parallel()
				pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{
					Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")},
					Ports:     []uint16{8080}, ProxyPorts: []uint16{15001, 15006, 15008}, ProxyUID: 1337, ProxyGID: 1337,
					MachineLink: "vm0",
				})
				if err := pod.Apply(t.Context(), b.dataplane, plan); err != nil {
					t.Fatal(err)
				}
				world, err := pod.World(plan)
				if err != nil {
					t.Fatal(err)
				}
				for _, packets := range []machinePackets{peers, c.extra} {
					for line, port := range packets {
						t.Run(line, func(t *testing.T) {
							t.Parallel()
							expectArrival(t, pod, world, line, port)
						})
					}
				}
			})
		}
	}
}

// expectArrival fails the test unless a packet arrives at a port of the pod, or elsewhere if that
// is 0, and its answer comes back, both in the kernel and in the trace.
func expectArrival(t *testing.T, pod *dataplanetest.Pod, world trace.World, line string, port uint16) {
	t.Helper()
	packet, err := trace.ParsePacket(line)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pod.Compare(t.Context(), world, packet)
	if err != nil || c.Disagreement != "" {
		t.Fatalf("%v\n%s", err, c.Report())
	}
	place := dataplanetest.InPod
	if port == 0 {
		place, port = dataplanetest.Elsewhere, packet.Dst.Port()
	}
	o := c.Observed
	if o.Verdict != dataplanetest.Accepted || o.At != place || o.Port != port || !o.Answered {
		t.Errorf("it should arrive in %s at port %d, and be answered:\n%s", place, port, c.Report())
	}
}
