// SPDX-License-Identifier: Apache-2.0

package mounts_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/examples/install-cni/internal/mounts"
)

// line returns a line of the table, for a mount of a file system's root at point.
func line(number, root, point string) string {
	return number + " 44 254:0 " + root + " " + point + " rw,relatime - ext4 /dev/vda rw\n"
}

func TestMoved(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	spaced := filepath.Join(dir, "net d")
	below := filepath.Join(spaced, "below")
	if err := os.MkdirAll(below, 0o700); err != nil {
		t.Fatal(err)
	}
	base, point := line("1", "/", "/"), strings.ReplaceAll(spaced, " ", `\040`)
	before := base + line("67", "/etc/cni/net.d", point)
	for name, test := range map[string]struct {
		table string
		want  string
	}{
		"nothing":              {before, ""},
		"moved":                {base + line("67", "/etc/cni/old", point), "was /etc/cni/net.d, and is /etc/cni/old"},
		"removed":              {base + line("67", "/etc/cni/net.d//deleted", point), "is /etc/cni/net.d//deleted"},
		"unmounted":            {base, ""},
		"mounted over":         {before + line("68", "/else", point), ""},
		"another of its place": {base + line("67", "/else", dir), ""},
		"moved, and over it":   {line("67", "/etc/cni/old", point) + line("68", "/else", point) + base, "is /etc/cni/old"},
	} {
		for _, directory := range []string{spaced, below} {
			t.Run(name+" "+filepath.Base(directory), func(t *testing.T) {
				t.Parallel()
				table := filepath.Join(t.TempDir(), "mountinfo")
				write(t, table, before)
				m, err := mounts.New(table, filepath.Join(dir, "missing"), directory)
				if err != nil || m.Moved() != nil {
					t.Fatal(err, m.Moved())
				}
				write(t, table, test.table)
				err = m.Moved()
				if (err != nil) != (test.want != "") || err != nil && (!errors.Is(err, mounts.ErrMoved) || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("got %v, want %q", err, test.want)
				}
			})
		}
	}
}

func TestNoTable(t *testing.T) {
	t.Parallel()
	m, err := mounts.New(filepath.Join(t.TempDir(), "mountinfo"), t.TempDir())
	if err == nil || m.Moved() != nil {
		t.Errorf("%v, and then %v", err, m.Moved())
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
