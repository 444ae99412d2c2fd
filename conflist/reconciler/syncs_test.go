// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"testing"

	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// syncs counts the calls that wait for the disk.
type syncs struct{ count int }

func (s *syncs) Observe(call filesystem.Call, do func() error) error {
	if call.Operation == filesystem.Sync || call.Operation == filesystem.SyncDirectory {
		s.count++
		return nil
	}
	return do()
}

// TestARestoreSyncsTwice checks the syncs of a restore: the file, and the directory with its name.
// At two restores a second, a fight costs four syncs.
func TestARestoreSyncsTwice(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mode   reconciler.Mode
		link   bool
		undone string // the file that is rewritten without the entry
	}{
		"splice":     {reconciler.Splice, false, "10-calico.conflist"},
		"a link":     {reconciler.Splice, true, "v1/net"},
		"owned":      {reconciler.Owned, false, "00-mesh-cni.conflist"},
		"dropin":     {reconciler.DropIn, false, "k8s-pod-network/99-mesh-cni.conf"},
		"standalone": {reconciler.Standalone, false, "YYY-mesh-cni.conf"},
	} {
		for _, removed := range []bool{false, true} {
			if removed && test.mode == reconciler.Splice {
				continue
			}
			n := newNode(t, test.mode)
			if test.link {
				n = newLinkedNode(t, test.mode)
			} else {
				n.write("10-calico.conflist", calicoList, 0o644)
			}
			counted := &syncs{}
			ctx := filesystem.WithObserver(t.Context(), counted)
			n.options.Claims = reconciler.ClaimFile{Path: n.claim, Calls: counted}
			r := n.reconciler()
			if _, err := r.Install(ctx); err != nil {
				t.Fatal(err)
			}
			if n.unlink(test.undone); !removed {
				n.write(test.undone, calicoList, 0o644)
			}
			counted.count = 0
			plan, err := r.Ensure(ctx)
			if err != nil || !plan.Restores() || counted.count != 2 {
				t.Errorf("%s, removed %v: %d syncs, %v\n%v", name, removed, counted.count, err, plan)
			}
		}
	}
}
