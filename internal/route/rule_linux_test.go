// SPDX-License-Identifier: Apache-2.0

package route

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListRules checks that the rules of a new namespace are those of IPv4 and IPv6 (ip-rule(8)): a
// kernel with multicast routing has policy rules of other families, too.
func TestListRules(t *testing.T) {
	t.Parallel()
	rules, err := newSocket(t).listRules()
	if err != nil {
		t.Fatal(err)
	}
	families := map[byte][]uint32{}
	for _, r := range rules {
		families[r.family] = append(families[r.family], r.priority)
	}
	if len(families) != 2 || !slices.Equal(families[unix.AF_INET], []uint32{0, 32766, 32767}) ||
		!slices.Equal(families[unix.AF_INET6], []uint32{0, 32766}) {
		t.Errorf("got the priorities %v by family", families)
	}
}
