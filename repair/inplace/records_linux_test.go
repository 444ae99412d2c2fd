// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/internal/testing/repairmeshtest"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/inplace"
)

// criteria are those of a mesh whose pods have no validator, or none that has reported.
func criteria(seen repair.Observation) repair.Criteria {
	return repair.Criteria{Mesh: repairmeshtest.Istio(), Observed: seen}
}

// TestRecords judges pods by the records alone.
func TestRecords(t *testing.T) {
	t.Parallel()
	const path = "/var/run/netns/cni-1"
	damage := func(n *node) {
		n.write(filepath.Join(n.roots.Journal, "pods@"+container+"@eth0.json"), "{")
	}
	for name, test := range map[string]struct {
		have   func(n *node)
		reason repair.Reason
		fails  bool
	}{
		"nothing":                       {func(*node) {}, repair.ReasonNotRecorded, false},
		"a record":                      {func(n *node) { n.record(nil, path, uid, nil) }, repair.ReasonRecorded, false},
		"a record of another pod":       {func(n *node) { n.record(nil, path, otherUID, nil) }, repair.ReasonNotRecorded, false},
		"a record of the sandbox":       {func(n *node) { n.record(nil, path, uid, nil); n.result(path, uid) }, repair.ReasonRecorded, false},
		"a record of an earlier one":    {func(n *node) { n.record(nil, path, uid, nil); n.later(uid) }, repair.ReasonNotRecorded, false},
		"another pod's later sandbox":   {func(n *node) { n.record(nil, path, uid, nil); n.later(otherUID) }, repair.ReasonRecorded, false},
		"a later sandbox without a UID": {func(n *node) { n.record(nil, path, uid, nil); n.later("") }, repair.ReasonRecorded, false},
		"a damaged record":              {func(n *node) { n.record(nil, path, uid, nil); damage(n) }, repair.ReasonNotObserved, true},
		"a journal that is no directory": {func(n *node) {
			n.write(n.roots.Journal, "")
		}, repair.ReasonNotObserved, true},
		"a cache that is no directory": {func(n *node) {
			n.record(nil, path, uid, nil)
			if err := os.Remove(n.roots.Results); err != nil {
				n.t.Fatal(err)
			}
			n.write(n.roots.Results, "")
		}, repair.ReasonRecorded, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, p := newNode(t), pod()
			test.have(n)
			records, err := inplace.NewRecords(n.roots)
			if err != nil {
				t.Fatal(err)
			}
			seen, err := records.Observe(t.Context(), p)
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
	if _, err := inplace.NewRecords(inplace.Roots{Results: "/var/lib/cni/results"}); err == nil {
		t.Error("records without a journal")
	}
	if _, err := inplace.NewRecords(inplace.Roots{Journal: "journal"}); err == nil {
		t.Error("records by a relative path")
	}
	n, p := newNode(t), pod()
	records, err := inplace.NewRecords(n.roots)
	if err != nil {
		t.Fatal(err)
	}
	var refusal *inplace.RefusalError
	if err := records.Repair(t.Context(), p, planned(t, p)); !errors.As(err, &refusal) || refusal.Reason != inplace.ReasonUnreadable {
		t.Errorf("repaired: %v", err)
	}
	n.roots.Journal = ""
	finder, err := inplace.NewFinder(n.roots)
	if err != nil {
		t.Fatal(err)
	}
	if record, err := finder.Record(p); record != nil || err != nil {
		t.Errorf("recorded %+v, %v", record, err)
	}
}
