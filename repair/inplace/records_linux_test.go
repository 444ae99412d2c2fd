// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/inplace"
)

// criteria are those of a mesh whose pods have no validator, or none that has reported.
func criteria(seen repair.Observation) repair.Criteria {
	return repair.Criteria{Mesh: istio(), Observed: seen}
}

// TestRecords judges pods by the records alone.
func TestRecords(t *testing.T) {
	t.Parallel()
	const path = "/var/run/netns/cni-1"
	damage := func(n *fakenode.Node) {
		n.Write(filepath.Join(n.Roots.Journal, "pods@"+container+"@eth0.json"), "{")
	}
	for name, test := range map[string]struct {
		have   func(n *fakenode.Node)
		reason repair.Reason
		fails  bool
	}{
		"nothing":                    {func(*fakenode.Node) {}, repair.ReasonNotRecorded, false},
		"a record":                   {func(n *fakenode.Node) { n.Record(uid, nil, path, nil) }, repair.ReasonRecorded, false},
		"a record of another pod":    {func(n *fakenode.Node) { n.Record(otherUID, nil, path, nil) }, repair.ReasonNotRecorded, false},
		"a record of the sandbox":    {func(n *fakenode.Node) { n.Record(uid, nil, path, nil); n.Result(container, path, uid) }, repair.ReasonRecorded, false},
		"a record of an earlier one": {func(n *fakenode.Node) { n.Record(uid, nil, path, nil); n.Result("later", "/var/run/netns/cni-2", uid) }, repair.ReasonNotRecorded, false},
		"another pod's later sandbox": {func(n *fakenode.Node) {
			n.Record(uid, nil, path, nil)
			n.Result("later", "/var/run/netns/cni-2", otherUID)
		}, repair.ReasonRecorded, false},
		"a later sandbox without a UID": {func(n *fakenode.Node) { n.Record(uid, nil, path, nil); n.Result("later", "/var/run/netns/cni-2", "") }, repair.ReasonRecorded, false},
		"a damaged record":              {func(n *fakenode.Node) { n.Record(uid, nil, path, nil); damage(n) }, repair.ReasonNotObserved, true},
		"a journal that is not a directory": {func(n *fakenode.Node) {
			n.Write(n.Roots.Journal, "")
		}, repair.ReasonNotObserved, true},
		"a cache that is not a directory": {func(n *fakenode.Node) {
			n.Record(uid, nil, path, nil)
			if err := os.Remove(n.Roots.Results); err != nil {
				n.Fatal(err)
			}
			n.Write(n.Roots.Results, "")
		}, repair.ReasonRecorded, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, p := fakenode.New(t), pod()
			test.have(n)
			records, err := podnetns.NewRecords(n.Roots)
			if err != nil {
				t.Fatal(err)
			}
			seen, err := inplace.Records{Records: records}.Observe(t.Context(), p)
			if (err != nil) != test.fails {
				t.Errorf("observed: %v", err)
			}
			if f := repair.Diagnose(p, criteria(seen)); f.Reason != test.reason {
				t.Errorf("%s, want %s", f, test.reason)
			}
		})
	}
}

// TestRecordsLeadNowhere: without a journal nothing is known, and records alone repair nothing.
func TestRecordsLeadNowhere(t *testing.T) {
	t.Parallel()
	if _, err := podnetns.NewRecords(podnetns.Roots{Results: "/var/lib/cni/results"}); err == nil {
		t.Error("records without a journal")
	}
	if _, err := podnetns.NewRecords(podnetns.Roots{Journal: "journal"}); err == nil {
		t.Error("records by a relative path")
	}
	n, p := fakenode.New(t), pod()
	records, err := podnetns.NewRecords(n.Roots)
	if err != nil {
		t.Fatal(err)
	}
	var refusal *podnetns.RefusalError
	if err := (inplace.Records{Records: records}).Repair(t.Context(), p, planned(t, p)); !errors.As(err, &refusal) || refusal.Obstacle != podnetns.ObstacleUnreadable {
		t.Errorf("repaired: %v", err)
	}
	n.Roots.Journal = ""
	finder, err := podnetns.NewFinder(n.Roots)
	if err != nil {
		t.Fatal(err)
	}
	if record, err := finder.Record(podnetns.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID}); record != nil || err != nil {
		t.Errorf("recorded %+v, %v", record, err)
	}
}
