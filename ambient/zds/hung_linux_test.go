// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"slices"
	"testing"
	"time"
)

// TestPodThatHangsTheProxy has a proxy hang on the first of three pods: when it connects again, it
// is told of the others before. Once it acknowledges the pod, the pods come in their order again.
func TestPodThatHangsTheProxy(t *testing.T) {
	t.Parallel()
	s := begin(t, Options{Timeout: time.Second})
	for _, uid := range []string{"a", "b", "c"} {
		set(t, s, uid)
	}
	hangs := dial(t, s)
	hangs.send(Hello{Version: Version1}.Marshal())
	hangs.expect(KindAdd, "a")
	hangs.expectEnd()
	connect(t, s, "b", "c", "a")
	if err := s.Await(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	connect(t, s, "a", "b", "c")
}

// TestPodsThatHang has several pods hang a proxy: the one that has waited longest comes first of
// them, also if it is set again.
func TestPodsThatHang(t *testing.T) {
	t.Parallel()
	s := listen(t, Options{})
	for _, uid := range []string{"a", "b", "c"} {
		set(t, s, uid)
	}
	for _, test := range []struct {
		kind Kind
		hung string
		want []string
	}{
		{KindDel, "c", []string{"a", "b", "c"}}, // it says nothing of a pod that is set again
		{KindSnapshotSent, "", []string{"a", "b", "c"}},
		{KindAdd, "gone", []string{"a", "b", "c"}},
		{KindAdd, "b", []string{"a", "c", "b"}},
		{KindKeep, "a", []string{"c", "b", "a"}},
		{KindAdd, "b", []string{"c", "a", "b"}},
	} {
		c := &connection{server: s, told: map[string]told{}}
		c.noteHung(outgoing{Request: Request{test.kind, Workload{UID: test.hung}}})
		s.join(c)
		if !slices.Equal(c.snapshot, test.want) {
			t.Errorf("%s of %q has hung: the snapshot is %q, want %q", test.kind, test.hung, c.snapshot, test.want)
		}
	}
	set(t, s, "a")
	set(t, s, "d")
	c := &connection{server: s, told: map[string]told{}, complete: true}
	s.join(c)
	c.snapshot = nil
	for _, want := range []string{"c", "d", "a", "b"} {
		if request, _, _ := c.next(); request.Kind != KindAdd || request.Workload.UID != want {
			t.Errorf("after the snapshot: %s of pod %s, want pod %s", request.Kind, request.Workload.UID, want)
		}
	}
	c.note(outgoing{Request: Request{KindAdd, workload("b")}}, "refused")
	if s.pods["b"].hung == 0 {
		t.Error("a pod that is refused counts as acknowledged")
	}
	c.note(outgoing{Request: Request{KindAdd, workload("b")}}, "")
	s.Delete("a")
	c.note(outgoing{Request: Request{KindAdd, workload("a")}}, "")
	if _, set := s.pods["a"]; set || s.pods["b"].hung != 0 {
		t.Errorf("after the acknowledgement of pod b, and of pod a, which is deleted: %+v", s.pods)
	}
}
