// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
)

// A test of another project's dataplane: what an application sends goes to the proxy, which learns
// its destination, and what the proxy sends goes there. Its package needs a TestMain that calls
// RunTests.
func ExampleNewPod() {
	_ = func(t *testing.T, apply func(ctx context.Context, netns string) error) { //nolint:thelper // the literal is a test, not a helper
		pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{Ports: []uint16{15001, 15006, 8080}})
		if err := apply(t.Context(), pod.Path()); err != nil {
			t.Fatal(err)
		}
		server := netip.MustParseAddrPort("198.51.100.7:443")

		got, err := pod.Send(t.Context(), dataplanetest.Probe{UID: 1000, Dst: server})
		if err != nil {
			t.Fatal(err)
		}
		if got.At != dataplanetest.InPod || got.Port != 15001 || got.OriginalDst != server {
			t.Errorf("an application's connection was %v, want it at the proxy", got)
		}

		got, err = pod.Send(t.Context(), dataplanetest.Probe{UID: 1337, Dst: server})
		if err != nil {
			t.Fatal(err)
		}
		if got.At != dataplanetest.Elsewhere {
			t.Errorf("the proxy's connection was %v, want it outside", got)
		}
	}
}

// A test of a dataplane against package trace, with two thousand random pairs of redirect and
// packet.
func ExampleAgree() {
	_ = func(t *testing.T, mine interception.Dataplane) { //nolint:thelper // the literal is a test, not a helper
		dataplanetest.Agree(t, mine, dataplanetest.AgreementOptions{})
	}
}

// A test of updates: a process is killed on each way from plan to plan.
func ExampleUpdates() {
	_ = func(t *testing.T) { //nolint:thelper // the literal is a test, not a helper
		dataplanetest.Updates(t, dataplanetest.UpdateOptions{
			// Replace the fake by the dataplane to test.
			New: func(testing.TB) interception.Dataplane { return fake.New(fake.Options{}) },
		})
	}
}

// Probes and observations print as one line each.
func ExampleObservation() {
	probe := dataplanetest.Probe{UID: 1000, Dst: netip.MustParseAddrPort("198.51.100.7:443")}
	observation := dataplanetest.Observation{
		Verdict:     dataplanetest.Accepted,
		At:          dataplanetest.InPod,
		Port:        15001,
		LocalAddr:   netip.MustParseAddrPort("127.0.0.1:15001"),
		OriginalDst: probe.Dst,
		Peer:        netip.MustParseAddrPort("10.244.1.10:40000"),
		Answered:    true,
	}
	fmt.Println(probe)
	fmt.Println(observation)
	// Output:
	// tcp from pod (uid 1000, gid 0) to 198.51.100.7:443
	// accepted in pod on port 15001 as 127.0.0.1:15001, from 10.244.1.10:40000, originally to 198.51.100.7:443
}

// Conformance tests a dataplane against the laws of the interface: here the fake one, which works
// in memory, so that it needs a ground of its own and has no packets. For a dataplane that works on
// the kernel, New is enough. Its package needs a TestMain that calls RunTests.
func ExampleConformance() {
	_ = func(t *testing.T) { //nolint:thelper // the literal is a test, not a helper
		ground := memory{fake.New(fake.Options{})}
		dataplanetest.Conformance(t, dataplanetest.ConformanceOptions{
			New:     func(testing.TB) interception.Dataplane { return ground.Dataplane },
			Ground:  ground,
			Without: map[dataplanetest.Law]string{dataplanetest.LawPackets: "what is in memory has no packets"},
		})
	}
	for _, law := range dataplanetest.Laws()[:3] {
		fmt.Println(law)
	}
	// Output:
	// applying a plan again changes nothing, also when another process does it
	// whatever the owner had before, after Apply the namespace holds what a fresh one would
	// Remove takes away everything of the owner's and nothing else, and is nil when there is nothing; a plan without objects does the same
}
