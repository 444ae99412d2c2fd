// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// Draining tests the end of a plan's life with a dataplane ([interception.Plan.Draining]), in both
// modes, both families and both directions. Captured connections go on under the draining plan,
// whichever side speaks first, and new ones go direct. What package trace says of the new ones must
// agree.
func Draining(t *testing.T, d interception.Dataplane) {
	t.Helper()
	inLivingPods(t, func(t *testing.T, _ sidecar.Redirect, pod *Pod, plan *interception.Plan) {
		t.Helper()
		if err := pod.Apply(t.Context(), d, plan); err != nil {
			t.Fatal(err)
		}
		var living []*Connection
		for line, captured := range drainedPackets() {
			packet := parsed(t, []string{line})[0]
			for range 2 { // in one the opener will speak first, in one the taker
				c := connect(t, pod, probeOf(packet))
				if c.Observation.Port != captured {
					t.Fatalf("%s arrived at port %d, want %d", line, c.Observation.Port, captured)
				}
				living = append(living, c)
			}
		}
		draining := plan.Draining()
		if err := pod.Apply(t.Context(), d, draining); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for i, c := range living {
			group.Go(func() { goesOn(t, c, Side(i%2)) })
		}
		group.Wait()
		goesDirect(t, pod, draining)
		for _, c := range living {
			goesOn(t, c, Opener)
		}
	})
}

// drainedPackets open the kinds of connections that the plan of Draining captures, with the proxy's
// port.
func drainedPackets() map[string]uint16 {
	return map[string]uint16{
		"tcp in eth0 192.0.2.9:0 > 10.244.1.10:8080":            15006,
		"tcp in eth0 [2001:db8::9]:0 > [fd00:10:244:1::a]:8080": 15006,
		"tcp uid 1000 gid 1000 > 198.51.100.7:443":              15001,
		"tcp uid 1000 gid 1000 > [2001:db8:7::7]:443":           15001,
	}
}

// goesOn tests that both sides of a connection hear each other.
func goesOn(t *testing.T, c *Connection, first Side) {
	t.Helper()
	for _, side := range []Side{first, 1 - first} {
		if verdict, err := c.Say(t.Context(), side); err != nil || verdict != Accepted {
			t.Errorf("connection %s captured by port %d: the word of the %s was %s, %v, want %s",
				c.Probe, c.Observation.Port, side, verdict, err, Accepted)
		}
	}
}

// goesDirect opens new connections under the draining plan.
func goesDirect(t *testing.T, pod *Pod, draining *interception.Plan) {
	t.Helper()
	world, err := pod.World(draining)
	if err != nil {
		t.Fatal(err)
	}
	for line := range drainedPackets() {
		packet := parsed(t, []string{line})[0]
		c, err := pod.Compare(t.Context(), world, packet)
		if err != nil || c.Disagreement != "" || c.Observed.Verdict != Accepted || c.Observed.Port != packet.Dst.Port() {
			t.Errorf("%s: %v, want that it goes direct\n%s", line, err, c.Report())
		}
	}
}
