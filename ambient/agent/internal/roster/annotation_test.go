// SPDX-License-Identifier: Apache-2.0

package roster_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

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
		var news []bool
		synctest.Test(t, func(*testing.T) {
			var a roster.Annotation
			for _, status := range test.before {
				a.Tell(status)
			}
			for _, status := range test.written {
				write(&a, status)
			}
			for _, status := range test.told {
				news = append(news, a.Tell(status))
			}
		})
		if !slices.Equal(news, test.news) {
			t.Errorf("%s: told %q, news %t, want %t", name, test.told, news, test.news)
		}
	}
}

// TestAnnotationForgetsOldWrites has the API server away while an agent writes: what it wrote
// before the last 16 writes is another one's when the feed tells it.
func TestAnnotationForgetsOldWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a roster.Annotation
		a.Tell("")
		write(&a, ambient.StatusPending)
		for range 16 {
			write(&a, ambient.StatusEnabled)
		}
		if !a.Tell(ambient.StatusPending) {
			t.Error("a write of long ago is still the agent's")
		}
	})
}

// write has a status written, and waits until it is.
func write(a *roster.Annotation, status ambient.Status) {
	a.Want(status, false, func(ambient.Status) {})
	<-time.After(4 * time.Second)
}

// TestEnabledByAnotherProgram has the feed tell "enabled" while the agent's own "pending" is not
// told: it stays.
func TestEnabledByAnotherProgram(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a roster.Annotation
		a.Tell(ambient.NoStatus)
		write(&a, ambient.StatusPending)
		if !a.Tell(ambient.StatusEnabled) {
			t.Error("another program's status is no news")
		}
		a.Want(ambient.StatusPending, false, func(status ambient.Status) { t.Errorf("wrote %q", status) })
		<-time.After(time.Hour)
	})
}

// TestWrites has an agent want statuses, each so long after the one before. What another program
// writes in the end is news, whatever the agent has wanted without writing it.
func TestWrites(t *testing.T) {
	t.Parallel()
	type want struct {
		after  time.Duration
		status ambient.Status
		waits  bool // the plugin waits for the pod
	}
	for name, test := range map[string]struct {
		told  []ambient.Status
		wants []want
		ends  time.Duration // after the last one
		wrote []ambient.Status
	}{
		"a new pod":                   {nil, []want{{0, "enabled", false}}, 0, []ambient.Status{"enabled"}},
		"as the pod has it":           {[]ambient.Status{"enabled"}, []want{{0, "enabled", false}}, 0, nil},
		"pending for a moment":        {[]ambient.Status{""}, []want{{0, "pending", false}, {2900 * time.Millisecond, "enabled", false}}, time.Hour, []ambient.Status{"enabled"}},
		"pending for 3.1 s":           {[]ambient.Status{""}, []want{{0, "pending", false}, {3100 * time.Millisecond, "enabled", false}}, 0, []ambient.Status{"pending", "enabled"}},
		"enabled and then pending":    {[]ambient.Status{"enabled"}, []want{{0, "pending", false}, {time.Hour, "enabled", false}}, 0, nil},
		"written, and then pending":   {nil, []want{{0, "enabled", false}, {0, "pending", false}}, time.Hour, []ambient.Status{"enabled"}},
		"pending again":               {[]ambient.Status{""}, []want{{0, "pending", false}, {2900 * time.Millisecond, "", false}, {0, "pending", false}}, 2900 * time.Millisecond, nil},
		"pending when the agent ends": {[]ambient.Status{""}, []want{{0, "pending", false}}, 2900 * time.Millisecond, nil},
		"gone and come back":          {[]ambient.Status{"enabled"}, []want{{0, "", false}, {0, "enabled", false}}, 0, []ambient.Status{"", "enabled"}},
		"while the plugin waits":      {nil, []want{{0, "enabled", true}}, 26 * time.Millisecond, []ambient.Status{"enabled"}},
		"before the plugin is gone":   {nil, []want{{0, "enabled", true}}, 24 * time.Millisecond, nil},
		"gone before it is written":   {[]ambient.Status{""}, []want{{0, "enabled", true}, {0, "", false}}, time.Hour, nil},
		"taken away when it ends":     {[]ambient.Status{"enabled"}, []want{{0, "", true}}, 0, []ambient.Status{""}},
		"pending, and a plugin waits": {[]ambient.Status{""}, []want{{0, "pending", true}}, 2900 * time.Millisecond, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			var a roster.Annotation
			for _, status := range test.told {
				a.Tell(status)
			}
			var wrote []ambient.Status
			for _, want := range test.wants {
				<-time.After(want.after)
				a.Want(want.status, want.waits, func(status ambient.Status) { wrote = append(wrote, status) })
			}
			<-time.After(test.ends)
			a.Stop()
			<-time.After(time.Hour)
			if !slices.Equal(wrote, test.wrote) {
				t.Errorf("%s: wrote %q, want %q", name, wrote, test.wrote)
			}
			if !slices.Contains(wrote, ambient.StatusPending) && !a.Tell(ambient.StatusPending) {
				t.Errorf("%s: another program's status is no news", name)
			}
		})
	}
}
