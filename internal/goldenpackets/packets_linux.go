// SPDX-License-Identifier: Apache-2.0

package goldenpackets

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/golden"
	"github.com/meshcni/meshcni/internal/sample"
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
			redirect, _, err := c.Redirect()
			if err != nil {
				t.Fatal(err)
			}
			pod := goldenPod(t, dataplane, redirect, plan)
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
func goldenPod(t *testing.T, dataplane interception.Dataplane, redirect interception.Redirect, plan *interception.Plan) *dataplanetest.Pod {
	t.Helper()
	uid, gid := sample.Pod{Redirect: redirect}.Owner()
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{
		Addresses:  []netip.Addr{netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2")},
		Ports:      []uint16{uint16(golden.ApplicationPort)},
		ProxyPorts: []uint16{15001, 15006, 15053}, ProxyUID: uint32(uid), ProxyGID: uint32(gid),
	})
	if err := pod.Apply(t.Context(), dataplane, plan); err != nil {
		t.Fatal(err)
	}
	return pod
}

func comparePacket(t *testing.T, pod *dataplanetest.Pod, world trace.World, packet trace.Packet) {
	t.Helper()
	comparison, err := pod.Compare(t.Context(), world, packet)
	if errors.Is(err, dataplanetest.ErrNeedsSecondUID) {
		t.Skip("needs a second uid: give this user subordinate ids in /etc/subuid and /etc/subgid, and install newuidmap (package uidmap)")
	}
	if err != nil {
		t.Fatal(err)
	}
	if comparison.Disagreement != "" {
		t.Error(comparison.Report())
	}
}
