// SPDX-License-Identifier: Apache-2.0

package choice_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestTally counts by the first candidate: nftables has nothing to count, whatever is there.
func TestTally(t *testing.T) {
	t.Parallel()
	pod := sandboxtest.NewPod(t)
	all := backends(t)
	applyWithMembers(t, all["iptables nft"], pod.Netns)
	for first, second := range map[string]string{"iptables nft": "nftables", "nftables": "iptables nft"} {
		d, err := choice.New(choice.Candidate{Name: first, Dataplane: all[first]}, choice.Candidate{Name: second, Dataplane: all[second]})
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Tally(t.Context(), pod.Netns, "mesh-test", "probes-v4")
		if counts := first != "nftables"; err != nil || (got != "") != counts {
			t.Errorf("%s: got %q, %v", first, got, err)
		}
		if got, err := d.Tally(t.Context(), pod.Netns, ""); first != "nftables" && err == nil {
			t.Errorf("%s, without an owner: got %q", first, got)
		}
	}
	var none choice.Dataplane
	if got, err := none.Tally(t.Context(), pod.Netns, interception.Owner("mesh-test")); err == nil {
		t.Errorf("without candidates: got %q", got)
	}
}
