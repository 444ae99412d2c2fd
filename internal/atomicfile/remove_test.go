// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRemove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	writeFile(t, path, "content", 0o600)
	for _, want := range []bool{true, false} {
		if removed, err := Remove(path); err != nil || removed != want {
			t.Errorf("Remove = %v, %v; want %v", removed, err, want)
		}
	}
	if removed, err := Remove(filepath.Join(dir, "missing", "file")); err != nil || removed {
		t.Errorf("Remove in a missing directory = %v, %v; want false", removed, err)
	}
	if removed, err := Remove(dir); !errors.Is(err, ErrNotRegular) || removed {
		t.Errorf("Remove of a directory = %v, %v; want ErrNotRegular", removed, err)
	}
}

func TestRemoveTakesTheLinkAndNotItsTarget(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	writeFile(t, target, "precious", 0o600)
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if removed, err := Remove(link); err != nil || !removed {
		t.Errorf("Remove = %v, %v; want true", removed, err)
	}
	wantFile(t, target, "precious", 0o600)
}

func TestRemoveStale(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Now()
	files := map[string]time.Duration{ // name: age
		"plugin":                      time.Hour,
		"plugin.tmp.0123456789abcdef": time.Hour,
		"plugin.tmp.421337":           time.Hour,
		"plugin.tmp.fedcba9876543210": 0,
		"plugin.tmp.":                 time.Hour,
		"plugin.tmp.backup":           time.Hour,
		"plugin2.tmp.0123":            time.Hour,
		"other.tmp.0123":              time.Hour,
	}
	for name, age := range files {
		path := filepath.Join(dir, name)
		writeFile(t, path, "", 0o600)
		if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := RemoveStale(filepath.Join(dir, "plugin"), now.Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(removed)
	if diff := cmp.Diff([]string{"plugin.tmp.0123456789abcdef", "plugin.tmp.421337"}, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != len(files)-len(removed) {
		t.Errorf("%d files are left, %v; want %d", len(left), err, len(files)-len(removed))
	}
}

func TestIsTemporary(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a.conflist.tmp.00ff": true, "a.tmp.x": false, "a.conflist": false, ".tmp.00": false, "a.tmp.b.tmp.00": true,
	} {
		if got := IsTemporary(name, ""); got != want {
			t.Errorf("IsTemporary(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestReadLimit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	writeFile(t, path, "12345", 0o600)
	if data, err := Read(path, 5); err != nil || string(data) != "12345" {
		t.Errorf("Read of 5 bytes = %q, %v", data, err)
	}
	if _, err := Read(path, 4); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Read beyond the limit: %v, want ErrTooLarge", err)
	}
}
