// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"errors"
	"io/fs"
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
		if removed, err := removeAt(path); err != nil || removed != want {
			t.Errorf("Remove = %v, %v; want %v", removed, err, want)
		}
	}
	if removed, err := removeAt(filepath.Join(dir, "missing", "file")); err != nil || removed {
		t.Errorf("Remove in a missing directory = %v, %v; want false", removed, err)
	}
	if removed, err := removeAt(dir); !errors.Is(err, ErrNotRegular) || removed {
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
	if removed, err := removeAt(link); err != nil || !removed {
		t.Errorf("Remove = %v, %v; want true", removed, err)
	}
	wantFile(t, target, "precious", 0o600)
}

func TestRemoveStale(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := time.Now()
	files := map[string]time.Duration{ // name: age
		"plugin":                             time.Hour,
		"plugin.tmp.0123456789abcdef":        time.Hour,
		"10-a.conflist.tmp.0a1b2c3d4e5f0001": time.Hour,
		"plugin.tmp.fedcba9876543210":        0,
		"plugin.tmp.421337":                  time.Hour, // another program's
		"plugin.tmp.backupbackupback":        time.Hour,
	}
	for name, age := range files {
		path := filepath.Join(dir, name)
		writeFile(t, path, "", 0o600)
		if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "directory.tmp.0123456789abcdef"), 0o755); err != nil {
		t.Fatal(err)
	}
	removed, err := Directory{Path: dir}.RemoveStale(now.Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(removed)
	if diff := cmp.Diff([]string{"10-a.conflist.tmp.0a1b2c3d4e5f0001", "plugin.tmp.0123456789abcdef"}, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != len(files)+1-len(removed) {
		t.Errorf("%d files are left, %v; want %d", len(left), err, len(files)+1-len(removed))
	}
	if _, err := (Directory{Path: filepath.Join(dir, "missing")}.RemoveStale(now)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("RemoveStale of a missing directory: %v, want fs.ErrNotExist", err)
	}
}

func removeAt(path string) (removed bool, err error) {
	return Directory{Path: filepath.Dir(path)}.Remove(filepath.Base(path))
}

func TestIsTemporary(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a.conflist.tmp.0123456789abcdef": true, "a.tmp.b.tmp.0123456789abcdef": true, ".tmp.0123456789abcdef": false,
		"a.conflist.tmp.0123456789abcdeF": false, "a.conflist.tmp.0123456789abcde": false, "a.conflist.tmp.0123456789abcdef0": false,
		"a.conflist": false, "a0123456789abcdef": false,
	} {
		if got := IsTemporary(name); got != want {
			t.Errorf("IsTemporary(%q) = %v, want %v", name, got, want)
		}
	}
}

// TestOwnNamesAreTemporary checks that RemoveStale recognises the names that writes create.
func TestOwnNamesAreTemporary(t *testing.T) {
	t.Parallel()
	if name := temporaryName("a.conflist"); !IsTemporary(name) {
		t.Errorf("IsTemporary(%q) = false", name)
	}
}

func TestReadLimit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	writeFile(t, path, "12345", 0o600)
	if data, err := readAt(path, 5); err != nil || string(data) != "12345" {
		t.Errorf("Read of 5 bytes = %q, %v", data, err)
	}
	if _, err := readAt(path, 4); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Read beyond the limit: %v, want ErrTooLarge", err)
	}
}
