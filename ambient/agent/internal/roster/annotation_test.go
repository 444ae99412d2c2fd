// SPDX-License-Identifier: Apache-2.0

package roster_test

import (
	"slices"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
)

// TestAnnotation has the feed tell statuses among the agent's writes.
func TestAnnotation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, written, told []ambient.Status
		news                  []bool
	}{
		"the first is news":           {nil, nil, []ambient.Status{"enabled", "enabled"}, []bool{true, false}},
		"none is a status, too":       {nil, nil, []ambient.Status{"", "", "enabled"}, []bool{true, false, true}},
		"one's own writes":            {[]ambient.Status{""}, []ambient.Status{"pending", "enabled"}, []ambient.Status{"", "pending", "enabled"}, []bool{false, false, false}},
		"a write that is passed over": {[]ambient.Status{""}, []ambient.Status{"pending", "enabled"}, []ambient.Status{"enabled", "pending"}, []bool{false, true}},
		"another one's write":         {[]ambient.Status{"enabled"}, []ambient.Status{"enabled"}, []ambient.Status{""}, []bool{true}},
		"a write is told once":        {[]ambient.Status{""}, []ambient.Status{"enabled"}, []ambient.Status{"enabled", "", "enabled"}, []bool{false, true, true}},
		"the first, after a write":    {nil, []ambient.Status{"enabled"}, []ambient.Status{"enabled"}, []bool{true}},
	} {
		var a roster.Annotation
		for _, status := range test.before {
			a.Tell(status)
		}
		for _, status := range test.written {
			a.Write(status)
		}
		var news []bool
		for _, status := range test.told {
			news = append(news, a.Tell(status))
		}
		if !slices.Equal(news, test.news) {
			t.Errorf("%s: told %q, news %t, want %t", name, test.told, news, test.news)
		}
	}
}

// TestAnnotationForgetsOldWrites has the API server away while an agent writes: what it wrote
// before the last 16 writes is another one's when the feed tells it.
func TestAnnotationForgetsOldWrites(t *testing.T) {
	t.Parallel()
	var a roster.Annotation
	a.Tell("")
	a.Write(ambient.StatusPending)
	for range 16 {
		a.Write(ambient.StatusEnabled)
	}
	if !a.Tell(ambient.StatusPending) {
		t.Error("a write of long ago is still the agent's")
	}
}
