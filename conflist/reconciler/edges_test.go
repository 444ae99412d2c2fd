// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
)

// TestABackupComesBackWithoutThePlugin has Cilium rename the list with the entry, and undo that.
func TestABackupComesBackWithoutThePlugin(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	n.write("10-calico.conflist", calicoList, 0o640)
	n.install()
	n.rename("10-calico.conflist", "10-calico.conflist.cilium_bak")
	n.write("05-cilium.conflist", `{"name":"cilium","plugins":[{"type":"cilium-cni"}]}`, 0o600)
	n.install()
	if got := n.read(filepath.Join(n.directory, "10-calico.conflist.cilium_bak")); got != calicoList {
		t.Errorf("the backup holds\n%s", got)
	}
	n.remove()
	n.want("after the uninstall", map[string]string{
		"05-cilium.conflist":            `-rw------- {"name":"cilium","plugins":[{"type":"cilium-cni"}]}`,
		"10-calico.conflist.cilium_bak": "-rw-r----- " + calicoList,
	})
}

// TestAFileOfAnotherUserIsReplaced: another owner could write to our file.
func TestAFileOfAnotherUserIsReplaced(t *testing.T) {
	t.Parallel()
	want := reconciler.Want{Plugin: conflist.Plugin{Type: meshType, Body: []byte(`{"type":"mesh-cni"}`)}, Mode: reconciler.DropIn}
	for _, foreign := range []bool{false, true} {
		dir := snapshot("10-calico.conflist", calicoList)
		dir["k8s-pod-network"] = reconciler.File{Mode: fs.ModeDir | 0o755}
		claim := reconciler.Claim{}.After(reconciler.Decide(dir, reconciler.Claim{}, want, time.Unix(1, 0)))
		dir["k8s-pod-network/99-mesh-cni.conf"] = reconciler.File{Mode: 0o600, Data: []byte("{\n  \"type\": \"mesh-cni\"\n}\n"), Foreign: foreign}
		if plan := reconciler.Decide(dir, claim, want, time.Unix(1, 0)); plan.Err != nil || (plan.Steps() > 0) != foreign {
			t.Errorf("another user's: %v; %v", foreign, plan)
		}
	}
}

// TestOurListStaysWhileThereIsNothingToCopy checks that our list remains the plugin's place, that
// other places are removed, and that pods have their network.
func TestOurListStaysWhileThereIsNothingToCopy(t *testing.T) {
	t.Parallel()
	want, now := reconciler.Want{Plugin: mesh("1"), Mode: reconciler.Owned}, time.Unix(1, 0)
	ours := strings.Replace(calicoList, `{"type": "bandwidth"`, string(mesh("1").Body)+`, {"type": "bandwidth"`, 1)
	claim := reconciler.Claim{}.Recorded("00-mesh-cni.conflist", reconciler.Owned)
	plan := reconciler.Decide(snapshot("00-mesh-cni.conflist", ours), claim, want, now)
	if !errors.Is(plan.Err, reconciler.ErrWaiting) || plan.File != "00-mesh-cni.conflist" || plan.Steps() > 0 {
		t.Errorf("%v", plan)
	}
}

// TestAnUninstallWithoutAClaim identifies our files by name.
func TestAnUninstallWithoutAClaim(t *testing.T) {
	t.Parallel()
	for _, mode := range modes() {
		n := newNode(t, mode)
		n.write("10-calico.conflist", calicoList, 0o640)
		before := dump(t, n.directory)
		n.install()
		n.unlink("../mesh-cni.claim")
		n.remove()
		n.want(string(mode)+", after the uninstall", before)
	}
}

// TestABetterFileThanTheNamedPrimary checks that a runtime that takes the first file never calls
// the plugin, and that one that selects its network by name does.
func TestABetterFileThanTheNamedPrimary(t *testing.T) {
	t.Parallel()
	dir := snapshot("05-other.conflist", strings.Replace(calicoList, "k8s-pod-network", "other", 1), "10-calico.conflist", calicoList)
	for _, mode := range []reconciler.Mode{reconciler.Splice, reconciler.DropIn} {
		for _, byName := range []bool{false, true} {
			want := reconciler.Want{Plugin: mesh("1"), Mode: mode, Primary: "10-calico.conflist", ByName: byName}
			plan := reconciler.Decide(dir, reconciler.Claim{}, want, time.Unix(1, 0))
			if errors.Is(plan.Err, reconciler.ErrWaiting) == byName || plan.Primary != "10-calico.conflist" || plan.Steps() == 0 {
				t.Errorf("%s, by name: %v:\n%v", mode, byName, plan)
			}
		}
	}
}

// TestAFileOfSomebodyElseInOurPlace checks that another program's file is refused, and stays.
func TestAFileOfSomebodyElseInOurPlace(t *testing.T) {
	t.Parallel()
	for mode, file := range map[reconciler.Mode]string{
		reconciler.Owned: "00-mesh-cni.conflist", reconciler.DropIn: "k8s-pod-network/99-mesh-cni.conf", reconciler.Standalone: "YYY-mesh-cni.conf",
	} {
		n := newNode(t, mode)
		shape{files: []string{"10-calico.conflist", calicoList, "k8s-pod-network/", "", file, `{"name":"x","type":"tuning"}`}}.lay(t, n.directory)
		before := dump(t, n.directory)
		if plan, err := n.reconciler().Install(t.Context()); !errors.Is(err, reconciler.ErrRefused) || !strings.Contains(err.Error(), "belongs to another program") {
			t.Errorf("%s: %v\n%v", mode, err, plan)
		}
		n.want(string(mode), before)
	}
}

// TestALinkToAListOfOursIsNoListOfOurs: the reconciler would write because of it forever.
func TestALinkToAListOfOursIsNoListOfOurs(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Owned)
	n.write("10-calico.conflist", calicoList, 0o640)
	n.install()
	n.rename("00-mesh-cni.conflist", "copy")
	if err := os.Symlink("copy", filepath.Join(n.directory, "00-mesh-cni.conflist")); err != nil {
		t.Fatal(err)
	}
	before := dump(t, n.directory)
	if plan, err := n.reconciler().Install(t.Context()); !errors.Is(err, reconciler.ErrRefused) || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("%v\n%v", err, plan)
	}
	n.want("after a refusal", before)
}

// TestAnUninstallTakesABrokenFileOfOurOwn: no other program would remove it.
func TestAnUninstallTakesABrokenFileOfOurOwn(t *testing.T) {
	t.Parallel()
	for _, mode := range modes()[1:] {
		n := newNode(t, mode)
		n.write("10-calico.conflist", calicoList, 0o640)
		before := dump(t, n.directory)
		n.install()
		n.write(n.place(), "{", 0o600)
		n.remove()
		n.want(string(mode)+", after the uninstall", before)
	}
}

func TestATooLargeFileIsNoConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	n.write("10-calico.conflist", calicoList+strings.Repeat(" ", conflist.MaxSize), 0o640)
	before := dump(t, n.directory)
	if plan, err := n.reconciler().Install(t.Context()); !errors.Is(err, reconciler.ErrRefused) || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("%v\n%v", err, plan)
	}
	n.want("after a refusal", before)
}
