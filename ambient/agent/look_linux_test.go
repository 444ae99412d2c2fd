// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/ambient"
)

// TestNextSandboxHasOtherAddresses has the plugin hand over a pod's next sandbox, with other
// addresses, while the feed goes on to tell those of the former one. The host's sets get those that
// the plugin told, and the sandbox is given up by them.
func TestNextSandboxHasOtherAddresses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("none")
	a, _ := n.run()
	n.proxy()
	stale := object("a")
	stale.Addresses = []netip.Addr{netip.MustParseAddr("10.244.9.9"), netip.MustParseAddr("fd00:10:244:9::9")}
	n.feed <- told(stale)
	n.arrive(a, pod.Path(), "second")
	n.connect(pod, 1)
	want := []string{addresses[0].String() + " a", addresses[1].String() + " a"}
	if got := n.members(); !slices.Equal(got, want) {
		t.Errorf("members %q, want %q", got, want)
	}
	stale.Labels = map[string]string{"app": "web", "istio.io/dataplane-mode": "ambient"}
	n.feed <- ambient.Change{Pods: []ambient.Pod{stale}}
	if !n.leave(a, sandboxOf("second"), pod.Path()) || len(n.members()) > 0 {
		t.Errorf("the sandbox is not given up by its addresses: members %q", n.members())
	}
}

// TestAddressesOfARecordedPod has the API server know no address of a running pod, whose record has
// those that it had, on a node without rules on the host.
func TestAddressesOfARecordedPod(t *testing.T) {
	t.Parallel()
	w := newWorker(&Agent{}, "a")
	w.pod = object("a")
	w.pod.Addresses = nil
	w.noted.addresses = addresses
	for recorded, want := range map[bool][]netip.Addr{false: nil, true: addresses} {
		w.recorded = recorded
		if got, err := w.lastAddresses(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("with a record %t: %v, %v, want %v", recorded, got, err, want)
		}
	}
}
