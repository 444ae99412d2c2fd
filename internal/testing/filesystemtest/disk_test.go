// SPDX-License-Identifier: Apache-2.0

package filesystemtest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/testing/filesystemtest"
)

// disk has a file "old" in a directory, and shows which names and contents power cuts would leave.
type disk struct {
	*filesystemtest.Disk
	t    *testing.T
	root string
}

func newDisk(t *testing.T) disk {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "old"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := filesystemtest.NewDisk(root)
	if err != nil {
		t.Fatal(err)
	}
	return disk{d, t, root}
}

func (d disk) call(operation filesystem.Operation, name, more string) {
	d.t.Helper()
	call := filesystem.Call{Operation: operation, Path: filepath.Join(d.root, name), To: filepath.Join(d.root, more), Data: []byte(more), Mode: 0o600}
	if err := d.Observe(call, func() error { return nil }); err != nil {
		d.t.Fatal(err)
	}
}

func (d disk) cuts() map[string]bool {
	cuts := map[string]bool{}
	for _, tree := range d.PowerCuts() {
		text := ""
		for _, name := range []string{"old", "new", "dir", "dir/file"} {
			if f, ok := tree[name]; ok {
				text += fmt.Sprintf("%s=%s ", name, f.Content)
			}
		}
		cuts[text] = true
	}
	return cuts
}

func (d disk) want(cuts ...string) {
	d.t.Helper()
	want := map[string]bool{}
	for _, cut := range cuts {
		want[cut] = true
	}
	if diff := cmp.Diff(want, d.cuts()); diff != "" {
		d.t.Errorf("after a power cut (-want +got):\n%s", diff)
	}
}

func TestARenameMayBeDurableBeforeTheContent(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.call(filesystem.Create, "new", "")
	d.call(filesystem.SyncDirectory, ".", "")
	d.call(filesystem.Write, "new", "12")
	d.want("old=old new= ", "old=old new=12 ", "old=old new=1 ", "old=old new=\x00\x00 ")
	d.call(filesystem.Rename, "new", "old")
	d.want("old=old new= ", "old=old new=12 ", "old=old new=1 ", "old=old new=\x00\x00 ", "old= ", "old=12 ", "old=1 ", "old=\x00\x00 ")
	d.call(filesystem.Sync, "old", "")
	d.want("old=old new=12 ", "old=12 ")
	d.call(filesystem.SyncDirectory, ".", "")
	d.want("old=12 ")
}

func TestRemovalsAndDirectoriesAreDurableBySyncs(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.call(filesystem.Remove, "old", "")
	d.want("old=old ", "")
	d.call(filesystem.SyncDirectory, ".", "")
	d.want("")
	d.call(filesystem.MakeDirectory, "dir", "")
	d.call(filesystem.Create, "dir/file", "")
	d.call(filesystem.SyncDirectory, "dir", "")
	d.want("", "dir= dir/file= ")
}

func TestClonesAreApart(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	d.call(filesystem.Create, "new", "")
	d.call(filesystem.Write, "new", "12")
	other := disk{d.Clone(), t, d.root}
	other.call(filesystem.Sync, "new", "")
	other.call(filesystem.SyncDirectory, ".", "")
	other.call(filesystem.Remove, "old", "")
	other.want("old=old new=12 ", "new=12 ")
	d.want("old=old ", "old=old new= ", "old=old new=12 ", "old=old new=1 ", "old=old new=\x00\x00 ")
	if got := other.Tree(); len(got) != 1 || got["new"].Content != "12" {
		t.Errorf("with the power on there is %v", got)
	}
}

func TestFailedCallsReachNoDisk(t *testing.T) {
	t.Parallel()
	d, broken := newDisk(t), errors.New("broken")
	err := d.Observe(filesystem.Call{Operation: filesystem.Remove, Path: filepath.Join(d.root, "old")}, func() error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	d.want("old=old ")
}

func TestManyUnsyncedChanges(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	for i := range 20 {
		d.call(filesystem.Create, fmt.Sprint("file-", i), "")
	}
	d.call(filesystem.Remove, "old", "")
	cuts := d.cuts()
	if !cuts[""] || !cuts["old=old "] || len(d.PowerCuts()) > 100 {
		t.Errorf("%d trees, %v", len(d.PowerCuts()), cuts)
	}
}

func TestMaterialise(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	first := filesystemtest.Tree{
		"a": {Mode: 0o640, Content: "1"}, "d": {Mode: os.ModeDir | 0o755}, "d/b": {Mode: 0o600}, "l": {Mode: os.ModeSymlink | 0o777, Content: "a"},
	}
	second := filesystemtest.Tree{"a": {Mode: os.ModeDir | 0o700}, "a/x": {Mode: 0o600, Content: "2"}, "d": {Mode: os.ModeDir | 0o700}}
	for _, tree := range []filesystemtest.Tree{first, second, first, {}} {
		if err := tree.Materialise(root); err != nil {
			t.Fatal(err)
		}
		got, err := filesystemtest.Read(root)
		if diff := cmp.Diff(tree, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}
