// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestSameAs(t *testing.T) {
	t.Parallel()
	a, b := Directory{Path: t.TempDir()}, Directory{Path: t.TempDir()}
	for name, contents := range map[string][2]string{"same": {"x", "x"}, "other": {"x", "y"}, "longer": {"x", "xx"}} {
		for i, directory := range []Directory{a, b} {
			if err := os.WriteFile(filepath.Join(directory.Path, name), []byte(contents[i]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if same, err := a.SameAs(b, name, name); err != nil || same != (name == "same") {
			t.Errorf("%s: %v, %v", name, same, err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.Path, "missing"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.SameAs(b, "missing", "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := b.SameAs(a, "missing", "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file to compare with: %v", err)
	}
}

func TestReadThroughLinks(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	file, link := filepath.Join(directory, "file"), filepath.Join(directory, "link")
	if err := errors.Join(os.WriteFile(file, []byte("four"), 0o600), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	if data, err := ReadThroughLinks(link, 4); err != nil || string(data) != "four" {
		t.Errorf("as large as the limit: %q, %v", data, err)
	}
	if data, err := ReadThroughLinks(link, 3); !errors.Is(err, ErrTooLarge) || data != nil {
		t.Errorf("larger than the limit: %q, %v", data, err)
	}
	if _, err := ReadThroughLinks(filepath.Join(directory, "missing"), 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
