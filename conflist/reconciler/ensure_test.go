// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

// ensure looks once, and checks that a second look has nothing to do.
func (n *node) ensure() reconciler.Plan {
	n.t.Helper()
	plan, err := n.reconciler().Ensure(n.context)
	if err != nil || plan.Steps() == 0 {
		n.t.Fatalf("%v\n%v", err, plan)
	}
	if again, err := n.reconciler().Ensure(n.context); err != nil || again.Steps() > 0 {
		n.t.Errorf("%v\n%v", err, again)
	}
	return plan
}

// waits checks that a look finds that something is missing, and writes nothing.
func (n *node) waits() reconciler.Plan {
	n.t.Helper()
	before := dump(n.t, n.directory)
	plan, err := n.reconciler().Ensure(n.context)
	if !errors.Is(err, reconciler.ErrWaiting) {
		n.t.Errorf("%v\n%v", err, plan)
	}
	n.want("while it waits", before)
	return plan
}

func TestRestoresWhatIsOverwritten(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	n.waits()
	n.write("10-calico.conflist", calicoList, 0o640)
	if plan := n.ensure(); plan.Change.Cause != reconciler.Fresh || plan.File != "10-calico.conflist" || plan.Restores() {
		t.Errorf("installed: %v", plan)
	}
	installed := dump(t, n.directory)
	for range 8 {
		n.write("10-calico.conflist", calicoList, 0o640)
		plan := n.ensure()
		if c := plan.Change; !plan.Restores() || c.By.Name != "calico" || c.File != "10-calico.conflist" || c.Cause != reconciler.Overwritten {
			t.Errorf("restored: %v", plan)
		}
		n.want("after a restore", installed)
	}
}

// TestFollowsThePrimary makes another file the primary configuration, and then the first again.
func TestFollowsThePrimary(t *testing.T) {
	t.Parallel()
	for _, mode := range modes()[:3] {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, mode)
			n.write("10-calico.conflist", calicoList, 0o640)
			before := dump(t, n.directory)
			place := n.ensure().File

			n.write("05-cilium.conf", `{"name":"cilium","type":"cilium-cni"}`, 0o600)
			if mode == reconciler.DropIn { // a single configuration has none
				if _, err := n.reconciler().Ensure(n.context); !errors.Is(err, reconciler.ErrRefused) {
					t.Errorf("a single configuration: %v", err)
				}
				n.unlink("05-cilium.conf")
			} else {
				n.install()
				if list := n.loaded(); list == nil || chain(list)[0] != "cilium-cni" || calls(list) != 1 {
					t.Errorf("a runtime loads %v", list)
				}
				plan, err := n.reconciler().Ensure(n.context)
				if err != nil || (plan.File == place) != (mode == reconciler.Owned) {
					t.Errorf("the plugin is in %s, and was in %s: %v", plan.File, place, err)
				}
				n.unlink("05-cilium.conf")
				n.unlink("05-cilium.conflist")
			}
			n.install()
			if list := n.loaded(); list == nil || chain(list)[0] != "calico" || calls(list) != 1 {
				t.Errorf("a runtime loads %v", list)
			}
			n.remove()
			n.want("after the uninstall", before)
		})
	}
}

func TestCopiesWhatChanges(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Owned)
	n.write("10-calico.conflist", calicoList, 0o640)
	n.ensure()
	n.write("10-calico.conflist", strings.Replace(calicoList, `"snat": true`, `"snat": false`, 1), 0o640)
	if plan := n.ensure(); plan.Change.Cause != reconciler.Propagated || plan.Restores() {
		t.Errorf("change: %v", plan.Change)
	}
	if got := n.read(filepath.Join(n.directory, "00-mesh-cni.conflist")); !strings.Contains(got, `"snat": false`) {
		t.Errorf("the copy:\n%s", got)
	}
	n.unlink("10-calico.conflist") // its agent is about to rewrite it
	n.waits()
	if list := n.loaded(); list == nil || calls(list) != 1 {
		t.Errorf("a runtime loads %v", list)
	}
	n.write("10-calico.conflist", calicoList, 0o640)
	n.install()
	n.rename("00-mesh-cni.conflist", "00-mesh-cni.conflist.cilium_bak")
	if plan := n.ensure(); plan.Change.By.Name != "cilium" || plan.Change.Cause != reconciler.RenamedAway {
		t.Errorf("restored: %v", plan)
	}
}

func TestWaitsForAFileThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	n.options.Now = nil
	n.write("20-other.conflist", calicoList, 0o640)
	n.write("10-calico.conflist", calicoList[:100], 0o640)
	if plan := n.waits(); !strings.Contains(plan.Err.Error(), "another program to finish writing 10-calico.conflist") {
		t.Errorf("waiting: %v", plan.Err)
	}
	n.write("10-calico.conflist", calicoList, 0o640)
	if plan := n.ensure(); plan.File != "10-calico.conflist" {
		t.Errorf("installed in %s", plan.File)
	}
	n.write("10-calico.conflist", calicoList[:100], 0o640)
	again := n.waits().Again
	if wait := time.Until(again); wait <= 0 || wait > time.Minute {
		t.Errorf("looks again in %v", wait)
	}
	n.options.Now = func() time.Time { return again } // it stays unfinished
	n.install()
	if plan, err := n.reconciler().Ensure(n.context); err != nil || plan.File != "20-other.conflist" {
		t.Errorf("installed in %s, %v", plan.File, err)
	}
}

// TestWaitsForANamedFileThatIsBeingWritten is the same for the primary configuration that the
// caller names: another program truncates it, and writes it anew.
func TestWaitsForANamedFileThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	for _, written := range []int{0, 100} {
		n := newNode(t, reconciler.Splice)
		n.options.Now, n.options.Want.Primary = nil, "10-calico.conflist"
		n.write("10-calico.conflist", calicoList, 0o640)
		n.install()
		n.write("10-calico.conflist", calicoList[:written], 0o640)
		if plan := n.waits(); plan.Again.IsZero() || !strings.Contains(plan.Err.Error(), "another program to finish writing 10-calico.conflist") {
			t.Errorf("%d bytes: %v, again at %v", written, plan.Err, plan.Again)
		}
		n.write("10-calico.conflist", calicoList, 0o640)
		if plan := n.ensure(); !plan.Restores() {
			t.Errorf("%d bytes: %v", written, plan)
		}
	}
}
