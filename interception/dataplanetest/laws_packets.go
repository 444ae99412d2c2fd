// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"testing"

	"github.com/meshcni/meshcni/interception/trace"
)

// packets sends the packets of every case, each case in a pod of its own, one packet after the other. Parallel subtests would wait until all
// pods stand: every program that any test starts meanwhile would begin with a copy of thousands of their descriptors.
func (s *suite) packets(t *testing.T) {
	t.Helper()
	s.each(t, s.all(t), func(t *testing.T, c Case) {
		t.Helper()
		pod := NewPod(t, c.Pod)
		if err := pod.Apply(t.Context(), s.New(t), c.Plan); err != nil {
			t.Fatalf("law %q: Apply: %v\nplan:\n%s", string(LawPackets), err, c.Plan)
		}
		world, err := pod.World(c.Plan)
		if err != nil {
			t.Fatal(err)
		}
		for _, packet := range c.Packets {
			t.Run(packet.String(), func(t *testing.T) {
				comparePacket(t, pod, world, packet)
			})
		}
	})
}

func comparePacket(t *testing.T, pod *Pod, world trace.World, packet trace.Packet) {
	t.Helper()
	c, err := pod.Compare(t.Context(), world, packet)
	if errors.Is(err, ErrNeedsSecondUID) {
		t.Skipf("%v: give this user subordinate ids in /etc/subuid and /etc/subgid, and install newuidmap (package uidmap)", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if c.Disagreement != "" {
		LawPackets.broken(t, "%s", c.Report())
	}
}
