// SPDX-License-Identifier: Apache-2.0

package goldenpackets

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/golden"
)

// Compare sends every packet of every golden case in a directory, each case in a pod of its own to which the dataplane applies the plan,
// and compares with the trace.
func Compare(t *testing.T, dataplane interception.Dataplane, dir string) {
	t.Helper()
	cases, err := golden.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			plan, _, err := c.Plan()
			if err != nil {
				t.Fatal(err)
			}
			pod := goldenPod(t, dataplane, plan)
			for _, packet := range c.Packets {
				t.Run(packet.String(), func(t *testing.T) {
					t.Parallel()
					comparePacket(t, pod, golden.World(plan), packet)
				})
			}
		})
	}
}

// goldenPod is the pod of golden.World, with the plan applied.
func goldenPod(t *testing.T, dataplane interception.Dataplane, plan *interception.Plan) *dataplanetest.Pod {
	t.Helper()
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")},
		Ports:     []uint16{uint16(golden.ApplicationPort), 15001, 15006, 15053},
	})
	ns, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	if err := dataplane.Apply(t.Context(), ns, plan); err != nil {
		t.Fatal(err)
	}
	for address := range interception.ObjectsOf[interception.Address](plan) {
		awaitLocal(t, pod, address.Prefix.Addr())
	}
	return pod
}

// awaitLocal waits until the kernel routes an address locally, which for IPv6 it begins a moment after the address is there.
func awaitLocal(t *testing.T, pod *dataplanetest.Pod, address netip.Addr) {
	t.Helper()
	for range time.Tick(time.Millisecond) {
		var routes []netlink.Route
		if err := pod.Do(func() (err error) {
			routes, err = netlink.RouteGet(address.AsSlice())
			return err
		}); err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return
		}
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func comparePacket(t *testing.T, pod *dataplanetest.Pod, world trace.World, packet trace.Packet) {
	t.Helper()
	expected, err := trace.Trace(world, packet)
	if err != nil {
		t.Fatal(err)
	}
	observed, err := pod.Send(t.Context(), probeOf(packet))
	if errors.Is(err, dataplanetest.ErrNeedsSecondUID) {
		t.Skip("needs a second uid: give this user subordinate ids in /etc/subuid and /etc/subgid, and install newuidmap (package uidmap)")
	}
	if err != nil {
		t.Fatal(err)
	}
	if problem := Disagreement(expected, observed); problem != "" {
		t.Errorf("%s\ntrace:  %s\nkernel: %s\n%s", problem, expected, observed, expected.Report())
	}
}

func probeOf(packet trace.Packet) dataplanetest.Probe {
	probe := dataplanetest.Probe{Src: packet.Src.Addr(), Dst: packet.Dst}
	if packet.Protocol == interception.ProtocolUDP {
		probe.Protocol = dataplanetest.UDP
	}
	switch from := packet.From.(type) {
	case trace.Socket:
		probe.UID, probe.GID = uint32(from.UID), uint32(from.GID)
	case trace.Arrival:
		probe.From = dataplanetest.Elsewhere
	}
	return probe
}

// Disagreement says in what the kernel differs from the trace; "" when it does not.
func Disagreement(expected trace.Outcome, observed dataplanetest.Observation) string {
	switch expected.Verdict {
	case trace.Delivered, trace.Sent:
		return arrivalDisagreement(expected, observed)
	case trace.Refused, trace.Rejected:
		if observed.Verdict != dataplanetest.Refused || !errors.Is(observed.Err, syscall.ECONNREFUSED) {
			return "it should be refused"
		}
	case trace.Dropped:
		if observed.Verdict != dataplanetest.Dropped {
			return "it should be dropped"
		}
	case trace.Unroutable, trace.Unknown:
		return "golden packets are routable, and golden plans have no live sets"
	}
	return ""
}

func arrivalDisagreement(expected trace.Outcome, observed dataplanetest.Observation) string {
	place := dataplanetest.InPod
	if expected.Verdict == trace.Sent {
		place = dataplanetest.Elsewhere
	}
	switch {
	case observed.Verdict != dataplanetest.Accepted || observed.At != place:
		return fmt.Sprintf("it should arrive in %s", place)
	case expected.Verdict == trace.Delivered && observed.Port != uint16(expected.Listener.Port):
		return fmt.Sprintf("it should arrive at the listener on port %d", expected.Listener.Port)
	case observed.LocalAddr != expected.Header.Dst:
		return fmt.Sprintf("it should arrive at %s", expected.Header.Dst)
	case observed.Peer.Addr() != expected.Header.Src.Addr():
		return fmt.Sprintf("it should come from %s", expected.Header.Src.Addr())
	case place == dataplanetest.Elsewhere || expected.Packet.Protocol == interception.ProtocolUDP:
		return ""
	case observed.OriginalDst != expected.OriginalDst:
		return fmt.Sprintf("the listener should learn the original destination %s", expected.OriginalDst)
	default:
		return ""
	}
}
