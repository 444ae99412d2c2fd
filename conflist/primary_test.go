// SPDX-License-Identifier: Apache-2.0

package conflist_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/meshcni/meshcni/conflist"
)

const (
	aList   = `{"name":"n","plugins":[{"type":"a"}]}`
	aSingle = `{"name":"n","type":"a"}`
)

// directory returns a CNI configuration directory from pairs of file name and content.
func directory(pairs ...string) fstest.MapFS {
	dir := fstest.MapFS{}
	for pair := range slices.Chunk(pairs, 2) {
		dir[pair[0]] = &fstest.MapFile{Data: []byte(pair[1]), Mode: 0o600}
	}
	return dir
}

func TestPrimary(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		dir  fstest.MapFS
		want string
	}{
		{"a list", directory("10-a.conflist", aList), "10-a.conflist"},
		{"a single configuration", directory("10-a.conf", aSingle), "10-a.conf"},
		{"one named .json", directory("10-a.json", aSingle), "10-a.json"},
		{"the first by name", directory("9-a.conflist", aList, "10-b.conflist", aList, "05-c.conf", aSingle), "05-c.conf"},
		{"bytewise: digits before capitals before small letters", directory("a.conf", aSingle, "B.conf", aSingle, "~.conf", aSingle), "B.conf"},
		{"two that differ in extension only", directory("10-a.conflist", aList, "10-a.conf", aSingle), "10-a.conf"},
		{"hidden ones count", directory(".0.conf", aSingle, "10-a.conflist", aList), ".0.conf"},
		{"a name that is an extension", directory(".conflist", aList), ".conflist"},
		{
			"temporary files and backups do not",
			directory("00.conflist.tmp", aList, "00.conf~", aSingle, "00.CONF", aSingle, "00.conflist.cilium_bak", aList, "00", aList, "10.conf", aSingle),
			"10.conf",
		},
		{"no JSON is skipped", directory("00.conf", "#!/bin/sh", "10.conflist", aList), "10.conflist"},
		{"a file without content is skipped", directory("00.conflist", "", "10.conflist", aList), "10.conflist"},
		{"a list named .conf is skipped", directory("00.conf", aList, "10.conflist", aList), "10.conflist"},
		{"a single configuration named .conflist is skipped", directory("00.conflist", aSingle, "10.conflist", aList), "10.conflist"},
		{"a list without name is skipped", directory("00.conflist", `{"plugins":[{"type":"a"}]}`, "10.conflist", aList), "10.conflist"},
		{"an empty list is skipped", directory("00.conflist", `{"name":"n","plugins":[]}`, "10.conflist", aList), "10.conflist"},
		{"an entry without type is skipped", directory("00.conflist", `{"name":"n","plugins":[{}]}`, "10.conflist", aList), "10.conflist"},
		{"a directory is skipped", directory("00.conflist/x", aList, "10.conflist", aList), "10.conflist"},
		{"an ambiguous one that runtimes load is not", directory("00.conflist", `{"name":"n","type":"b","plugins":[{"type":"a"}]}`, "10.conf", aSingle), "00.conflist"},
		{"nor one with two arrays", directory("00.conflist", `{"name":"n","plugins":[],"plugins":[{"type":"a"}]}`, "10.conf", aSingle), "00.conflist"},
		{"plugins in the drop-in directory", directory("00.conflist", `{"name":"n"}`, "n/a.conf", aSingle, "10.conf", aSingle), "00.conflist"},
		{"a drop-in directory without plugins", directory("00.conflist", `{"name":"n"}`, "n/a.conflist", aSingle, "10.conf", aSingle), "10.conf"},
		{"no drop-in directory", directory("00.conflist", `{"name":"n"}`, "10.conf", aSingle), "10.conf"},
		{"a drop-in that no runtime loads", directory("00.conflist", aList, "n/a.conf", "{}", "10.conf", aSingle), "10.conf"},
		{"a drop-in that is not read", directory("00.conflist", `{"name":"n","loadOnlyInlinedPlugins":true,"plugins":[{"type":"a"}]}`, "n/a.conf", "{}"), "00.conflist"},
		{"a file in the place of the drop-in directory", directory("00.conflist", aList, "n", "", "10.conf", aSingle), "10.conf"},
		{"a name that leads out of the directory", directory("00.conflist", `{"name":"../n","plugins":[{"type":"a"}]}`), "00.conflist"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := conflist.Primary(tc.dir)
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestPrimaryNone(t *testing.T) {
	t.Parallel()
	dir := directory("00.conflist", `{"name":"n","plugins":[]}`, "05.conf", aList, "10.json", "{", "n/a.conf", "{}", "20.conflist", aList)
	_, err := conflist.Primary(dir)
	var none *conflist.NoPrimaryError
	if !errors.Is(err, conflist.ErrNoPrimary) || !errors.As(err, &none) {
		t.Fatalf("got %v, want a NoPrimaryError", err)
	}
	want := []string{"00.conflist empty or not an array", `05.conf has no "type"`, "10.json no runtime can read it", `20.conflist n/a.conf: it has no "type"`}
	for i, w := range want {
		name, reason, _ := strings.Cut(w, " ")
		if s := none.Skipped[i]; s.Name != name || !strings.Contains(s.Err.Error(), reason) {
			t.Errorf("skipped %s because %v, want %s because %q", s.Name, s.Err, name, reason)
		}
		if !strings.Contains(err.Error(), name+": ") {
			t.Errorf("the message does not name %s: %v", name, err)
		}
	}
	if len(none.Skipped) != len(want) {
		t.Errorf("%d files skipped, want %d", len(none.Skipped), len(want))
	}
}

// TestPrimaryOfNothing checks empty and missing directories, as before a network plugin's install.
func TestPrimaryOfNothing(t *testing.T) {
	t.Parallel()
	for _, dir := range []fs.FS{directory(), os.DirFS(filepath.Join(t.TempDir(), "missing"))} {
		_, err := conflist.Primary(dir)
		if !errors.Is(err, conflist.ErrNoPrimary) || !strings.Contains(err.Error(), "install the cluster's network plugin") {
			t.Errorf("got %v, want ErrNoPrimary", err)
		}
	}
}

// brokenFS fails to open or list one name, and to stat another.
type brokenFS struct {
	fs.FS
	open, stat string
	err        error
}

func (b brokenFS) Open(name string) (fs.File, error) {
	if name == b.open {
		return nil, &fs.PathError{Op: "open", Path: name, Err: b.err}
	}
	return b.FS.Open(name)
}

func (b brokenFS) Stat(name string) (fs.FileInfo, error) {
	if name == b.stat {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: b.err}
	}
	return fs.Stat(b.FS, name)
}

// TestPrimaryDoesNotGuess checks that a doubtful file is neither taken nor skipped unless gone.
func TestPrimaryDoesNotGuess(t *testing.T) {
	t.Parallel()
	files := directory("00.conflist", aList, "n/a.conf", aSingle, "10.conf", aSingle)
	for _, name := range []string{".", "00.conflist", "n/a.conf", "n"} {
		for _, dir := range []brokenFS{{FS: files, open: name, err: fs.ErrPermission}, {FS: files, stat: name, err: fs.ErrPermission}} {
			if dir.stat == "." {
				continue // not read
			}
			_, err := conflist.Primary(dir)
			if !errors.Is(err, fs.ErrPermission) || errors.Is(err, conflist.ErrNoPrimary) {
				t.Errorf("%s cannot be read: got %v, want the reason", name, err)
			}
		}
	}
	for _, dir := range []brokenFS{{FS: files, open: "00.conflist", err: fs.ErrNotExist}, {FS: files, stat: "00.conflist", err: fs.ErrNotExist}} {
		got, err := conflist.Primary(dir)
		if got != "10.conf" || err != nil {
			t.Errorf("a file that vanished: got %q, %v; want the next", got, err)
		}
	}
	large := directory("00.conflist", aList+strings.Repeat(" ", conflist.MaxSize), "10.conf", aSingle)
	if _, err := conflist.Primary(large); err == nil || !strings.Contains(err.Error(), "00.conflist: larger than") {
		t.Errorf("a file that is too large: got %v", err)
	}
}

// TestPrimarySymbolicLinks checks links of a real directory: Primary follows those to files, skips
// those to anything else, and does not guess if the target is missing.
func TestPrimarySymbolicLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Skipf("the system makes no symbolic links: %v", err)
		}
	}
	link(".", "05.conflist")
	link("real", "10.conflist")
	if err := os.WriteFile(filepath.Join(dir, "real"), []byte(aList), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := conflist.Primary(os.DirFS(dir))
	if got != "10.conflist" || err != nil {
		t.Errorf("got %q, %v; want 10.conflist", got, err)
	}
	link("nowhere", "00.conflist")
	got, err = conflist.Primary(os.DirFS(dir))
	if got != "" || errors.Is(err, conflist.ErrNoPrimary) || err == nil || !strings.Contains(err.Error(), "00.conflist: it is a symbolic link") {
		t.Errorf("with a link that leads nowhere: got %q, %v", got, err)
	}
}
