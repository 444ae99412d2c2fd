// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"errors"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// TestFormerCapture has a plan beside another capture: what the proxy sends gets the mark that the
// other one leaves alone, and what the other one's proxy sends is not captured.
func TestFormerCapture(t *testing.T) {
	t.Parallel()
	n := BesideIstioNodeNumbers()
	former := FormerCapture{Skipped: interception.MarkBits{Value: 0x200, Mask: 0x200}, ProxyLink: "vethz"}
	plan := func() string {
		p, err := NodePlan(meshed().proxy, n, meshed().facts, "test-ambient")
		if err != nil {
			t.Fatal(err)
		}
		return p.String()
	}
	alone := plan()
	n.Former = former
	beside := plan()
	for _, text := range []string{"in vethz -> return", "set mark 0x200/0x200"} {
		if strings.Contains(alone, text) || !strings.Contains(beside, text) {
			t.Errorf("%q is in the plan beside the other capture: %t, and in that alone: %t", text, strings.Contains(beside, text),
				strings.Contains(alone, text))
		}
	}
	of := IstioNodeNumbers()
	of.Former = former
	if err := of.Validate(); !errors.Is(err, ErrNumbers) || !strings.Contains(err.Error(), "0x200/0x200") {
		t.Errorf("numbers that Istio has: %v, want ErrNumbers with the mark", err)
	}
}
