// SPDX-License-Identifier: Apache-2.0

package filesystem_test

import (
	"os"
	"testing"

	"github.com/meshcni/meshcni/internal/filesystem"
)

func TestNudgeLeavesNothing(t *testing.T) {
	t.Parallel()
	d := filesystem.Directory{Path: t.TempDir()}
	var seen calls
	d.Observer = &seen
	if err := d.Nudge(); err != nil {
		t.Fatal(err)
	}
	entries, err := d.List()
	if err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if len(seen) == 0 || seen[0].Operation != filesystem.Create || seen[len(seen)-1].Operation != filesystem.Remove {
		t.Errorf("calls %v, want a file that is made and removed", seen)
	}
}

type calls []filesystem.Call

func (c *calls) Observe(call filesystem.Call, do func() error) error {
	*c = append(*c, call)
	return do()
}

func TestRemoveEmpty(t *testing.T) {
	t.Parallel()
	above := filesystem.Directory{Path: t.TempDir()}
	d := filesystem.Directory{Path: above.In("network")}
	want := func(removed bool) {
		t.Helper()
		if got, err := d.RemoveEmpty(); got != removed || err != nil {
			t.Errorf("removed %v, %v; want %v", got, err, removed)
		}
	}
	want(false) // missing
	if err := d.Make(0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.In("x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want(false)
	if err := os.Remove(d.In("x")); err != nil {
		t.Fatal(err)
	}
	want(true)
	if err := os.Symlink(t.TempDir(), d.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := d.RemoveEmpty(); err == nil {
		t.Error("a link to a directory was removed")
	}
}

func TestForeign(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{t.TempDir(): false, "/": os.Geteuid() != 0} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if filesystem.Foreign(info) != want {
			t.Errorf("%s is foreign: %v, want %v", path, !want, want)
		}
	}
}
