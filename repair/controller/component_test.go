// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"

	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

// TestEventsNameTheProgram: events have the given name, or Istio's by default.
func TestEventsNameTheProgram(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"": "cni-repair", "mesh-repair": "mesh-repair"} {
		o := options(repair.ModeReport)
		o.Component = given
		f := start(t, o, broken("web-0"))
		f.awaitDone(t, repair.ModeReport, controller.ResultSuccess, 1)
		f.await(t, "told", func() bool { return len(f.cluster.Events()) > 0 })
		if got := f.cluster.Events()[0].Component; got != want {
			t.Errorf("%q: an event is of %q", given, got)
		}
	}
}

func TestAClientNeedsAConfiguration(t *testing.T) {
	t.Parallel()
	if _, err := controller.NewClient(nil); err == nil {
		t.Error("there is a client of nobody")
	}
}
