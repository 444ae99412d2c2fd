// SPDX-License-Identifier: Apache-2.0

package rendercheck_test

import (
	"encoding/binary"
	"strings"
	"testing"
)

// TestPlanOf makes sure that bytes give valid plans and plans that are invalid for many reasons,
// and that the same bytes always give the same plan.
func TestPlanOf(t *testing.T) {
	t.Parallel()
	valid, reasons := 0, map[string]bool{}
	const plans = 400
	for seed := range uint64(plans) {
		data := binary.BigEndian.AppendUint64(nil, seed*0x9e3779b97f4a7c15)
		plan := planOf(data)
		err := plan.Validate()
		if err == nil {
			valid++
			if planOf(data).String() != plan.String() {
				t.Errorf("%x is another plan the second time", data)
			}
			continue
		}
		for line := range strings.Lines(err.Error()) {
			words := strings.Fields(line)
			reasons[words[len(words)-1]] = true
		}
	}
	if valid < plans/4 || valid > 3*plans/4 || len(reasons) < 20 {
		t.Errorf("%d of %d plans are valid, and the others refused for %d reasons", valid, plans, len(reasons))
	}
}
