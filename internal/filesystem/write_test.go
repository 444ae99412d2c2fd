// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWriteMakesAndReplaces(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "10-net.conflist")
	for _, content := range []string{"first", "second, longer", "", "x"} {
		mustWrite(t, path, content, Options{Mode: 0o640}, true)
		wantFile(t, path, content, 0o640)
	}
	wantAlone(t, path)
}

func TestWriteDefaultsToPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	mustWrite(t, path, "token", Options{}, true)
	wantFile(t, path, "token", 0o600)
}

func TestWriteOfTheSameTouchesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	mustWrite(t, path, "content", Options{Mode: 0o644}, true)
	before := stat(t, path)
	mustWrite(t, path, "content", Options{Mode: 0o644}, false)
	mustWrite(t, path, "content", Options{Like: filepath.Base(path)}, false)
	after := stat(t, path)
	if !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Errorf("the file was replaced: %v, then %v", before, after)
	}
}

func TestWriteCorrectsTheMode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	writeFile(t, path, "token", 0o644)
	mustWrite(t, path, "token", Options{Mode: 0o600}, true)
	wantFile(t, path, "token", 0o600)
}

// TestWriteReplacesAnotherUsersFile needs root; other users check that our own file is kept.
func TestWriteReplacesAnotherUsersFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, source := filepath.Join(dir, "plugin"), t.TempDir()
	for _, write := range map[string]func() (bool, error){
		"Write": func() (bool, error) { return writeAt(path, []byte("program"), Options{Mode: 0o755}) },
		"CopyAs": func() (bool, error) {
			return Directory{Path: dir}.CopyAs(Directory{Path: source}, "plugin", "plugin", Options{Mode: 0o755})
		},
	} {
		writeFile(t, path, "program", 0o755)
		writeFile(t, filepath.Join(source, "plugin"), "program", 0o600)
		if changed, err := write(); err != nil || changed {
			t.Errorf("over our own file: %v, %v; want it kept", changed, err)
		}
		if os.Geteuid() != 0 {
			continue
		}
		if err := os.Chown(path, 12, 0); err != nil {
			t.Fatal(err)
		}
		if changed, err := write(); err != nil || !changed {
			t.Errorf("over another user's file: %v, %v; want it replaced", changed, err)
		}
		wantFile(t, path, "program", 0o755)
		if got := ownerOf(stat(t, path)); got.uid != os.Geteuid() {
			t.Errorf("it belongs to %v", *got)
		}
		if err := os.Chown(path, os.Geteuid(), 34); err != nil {
			t.Fatal(err)
		}
		if changed, err := write(); err != nil || changed {
			t.Errorf("over our own file of another group: %v, %v; want it kept", changed, err)
		}
	}
}

func TestWriteTakesModeAndOwner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	model, path := filepath.Join(dir, "10-net.conf"), filepath.Join(dir, "10-net.conflist")
	writeFile(t, model, "old", 0o604)
	if os.Geteuid() == 0 {
		if err := os.Chown(model, 12, 34); err != nil {
			t.Fatal(err)
		}
	}
	mustWrite(t, path, "new", Options{Like: filepath.Base(model)}, true)
	mustWrite(t, model, "newer", Options{Like: filepath.Base(model)}, true)
	for _, path := range []string{path, model} {
		if info := stat(t, path); info.Mode().Perm() != 0o604 {
			t.Errorf("%s has mode %v, want 0604", path, info.Mode())
		}
		if got, want := ownerOf(stat(t, path)), (owner{12, 34}); os.Geteuid() == 0 && *got != want {
			t.Errorf("%s belongs to %v, want %v", path, *got, want)
		}
	}
	_, err := writeAt(path, nil, Options{Like: "missing"})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Write like a missing file: %v, want fs.ErrNotExist", err)
	}
}

func TestWriteRefusesWhatIsNotAFile(t *testing.T) {
	t.Parallel()
	for name, put := range notFiles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "target")
			elsewhere := filepath.Join(t.TempDir(), "target")
			writeFile(t, elsewhere, "precious", 0o600)
			if err := put(path, elsewhere); err != nil {
				t.Fatal(err)
			}
			if changed, err := writeAt(path, []byte("new"), Options{}); !errors.Is(err, ErrNotRegular) || changed {
				t.Errorf("Write = %v, %v; want false, ErrNotRegular", changed, err)
			}
			here, there := Directory{Path: filepath.Dir(path)}, Directory{Path: filepath.Dir(elsewhere)}
			if changed, err := here.CopyAs(there, "target", "target", Options{}); !errors.Is(err, ErrNotRegular) || changed {
				t.Errorf("CopyAs to it = %v, %v; want false, ErrNotRegular", changed, err)
			}
			if changed, err := there.CopyAs(here, "target", "target", Options{}); !errors.Is(err, ErrNotRegular) || changed {
				t.Errorf("CopyAs of it = %v, %v; want false, ErrNotRegular", changed, err)
			}
			if removed, err := here.RemoveExpected("target", []byte("x")); !errors.Is(err, ErrNotRegular) || removed {
				t.Errorf("RemoveExpected = %v, %v; want false, ErrNotRegular", removed, err)
			}
			if _, err := readAt(path, 100); !errors.Is(err, ErrNotRegular) {
				t.Errorf("Read: %v; want ErrNotRegular", err)
			}
			if _, err := here.Write("other", nil, Options{Like: "target"}); !errors.Is(err, ErrNotRegular) {
				t.Errorf("Write like it: %v; want ErrNotRegular", err)
			}
			wantFile(t, elsewhere, "precious", 0o600)
			wantAlone(t, path)
		})
	}
}

func TestCopyAs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source, path := filepath.Join(dir, "plugin"), filepath.Join(dir, "target", "plugin")
	from, to := Directory{Path: dir}, Directory{Path: filepath.Dir(path)}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), 20_000) // several pieces, the last one partial
	content = append(content, "end"...)
	last := bytes.Clone(content)
	last[len(last)-1] = 'D'
	for _, content := range [][]byte{content, content[:len(content)-1], last, nil, []byte("short")} {
		writeFile(t, source, string(content), 0o644)
		for _, want := range []bool{true, false} {
			if changed, err := to.CopyAs(from, "plugin", "plugin", Options{Mode: 0o755}); err != nil || changed != want {
				t.Fatalf("CopyAs of %d bytes = %v, %v; want %v", len(content), changed, err, want)
			}
			wantFile(t, path, string(content), 0o755)
		}
	}
	wantAlone(t, path)
	if _, err := to.CopyAs(from, "missing", "missing", Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("CopyAs of a missing file: %v, want fs.ErrNotExist", err)
	}
}

func TestFailuresLeaveTheOldFile(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	tests := map[string]struct {
		content io.ReadSeeker
		size    int64
		want    string
	}{
		"source fails":  {content: &failing{Reader: strings.NewReader("half"), err: broken}, size: 100, want: "disk on fire"},
		"source shrank": {content: strings.NewReader("half"), size: 100, want: "changed while it was copied"},
		"source grew":   {content: strings.NewReader("doubled"), size: 3, want: "changed while it was copied"},
		"seek fails":    {content: &failing{Reader: strings.NewReader(""), seek: broken}, size: 100, want: "disk on fire"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			writeFile(t, path, "old", 0o600)
			changed, err := Directory{Path: filepath.Dir(path)}.replace(filepath.Base(path), test.content, test.size, Options{})
			if changed || err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("replace = %v, %v; want an error with the path and %q", changed, err, test.want)
			}
			wantFile(t, path, "old", 0o600)
			wantAlone(t, path)
		})
	}
}

func TestWriteExpects(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	for _, theirs := range []string{"theirs", "longer than what was expected", ""} {
		writeFile(t, path, theirs, 0o600)
		if changed, err := writeAt(path, []byte("ours"), Options{Expect: []byte("before")}); !errors.Is(err, ErrChanged) || changed {
			t.Errorf("Write over %q = %v, %v; want ErrChanged", theirs, changed, err)
		}
		wantFile(t, path, theirs, 0o600)
	}
	mustWrite(t, path, "ours", Options{Expect: []byte{}}, true)
	mustWrite(t, path, "more", Options{Expect: []byte("ours")}, true)
	mustWrite(t, path, "more", Options{Expect: []byte("something else")}, false) // nothing to write
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := writeAt(path, []byte("ours"), Options{Expect: []byte("more")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Write of a file that has gone: %v, want fs.ErrNotExist", err)
	}
	wantAlone(t, path)
}

// beforeSync is called before a file's content is synced.
type beforeSync func()

func (f beforeSync) Observe(call Call, do func() error) error {
	if call.Operation == Sync {
		f()
	}
	return do()
}

// TestWriteNew has another program create the file while the temporary one is written.
func TestWriteNew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	d := Directory{Path: filepath.Dir(path), Observer: beforeSync(func() { writeFile(t, path, "theirs", 0o600) })}
	if changed, err := d.Write("file", []byte("ours"), Options{New: true}); !errors.Is(err, ErrChanged) || changed {
		t.Errorf("Write = %v, %v; want ErrChanged", changed, err)
	}
	wantFile(t, path, "theirs", 0o600)
	wantAlone(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, path, "ours", Options{New: true}, true)
}

func TestWriteNeedsTheDirectory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing", "file")
	if _, err := writeAt(path, nil, Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Write: %v, want fs.ErrNotExist", err)
	}
}

// TestReadersSeeWholeFiles has several goroutines write and read one file concurrently.
func TestReadersSeeWholeFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	contents := []string{strings.Repeat("a", 100_000), strings.Repeat("b", 50_000)}
	mustWrite(t, path, contents[0], Options{}, true)
	var writers sync.WaitGroup
	for _, content := range contents {
		writers.Go(func() {
			for range 20 {
				if _, err := writeAt(path, []byte(content), Options{}); err != nil {
					t.Errorf("Write: %v", err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for {
		select {
		case <-done:
			wantAlone(t, path)
			return
		default:
		}
		data, err := readAt(path, 1<<20)
		if err != nil || (string(data) != contents[0] && string(data) != contents[1]) {
			t.Fatalf("Read = %d bytes, %v; want one of the whole contents", len(data), err)
		}
	}
}

// failing is content whose reading or seeking fails after the content of Reader.
type failing struct {
	io.Reader
	err, seek error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF && f.err != nil {
		err = f.err
	}
	return n, err
}

func (f *failing) Seek(int64, int) (int64, error) { return 0, f.seek }

// notFiles returns functions that put something other than a regular file at path.
func notFiles() map[string]func(path, elsewhere string) error {
	makers := map[string]func(path, elsewhere string) error{
		"directory": func(path, _ string) error { return os.Mkdir(path, 0o755) },
	}
	if runtime.GOOS != "windows" {
		makers["link"] = func(path, elsewhere string) error { return os.Symlink(elsewhere, path) }
		makers["dangling link"] = func(path, elsewhere string) error { return os.Symlink(elsewhere+".missing", path) }
		makers["pipe"] = func(path, _ string) error { return makePipe(path) }
	}
	return makers
}

func writeAt(path string, data []byte, o Options) (changed bool, err error) {
	return Directory{Path: filepath.Dir(path)}.Write(filepath.Base(path), data, o)
}

func readAt(path string, limit int64) ([]byte, error) {
	return Directory{Path: filepath.Dir(path)}.Read(filepath.Base(path), limit)
}

func mustWrite(t *testing.T, path, content string, o Options, wantChanged bool) {
	t.Helper()
	if changed, err := writeAt(path, []byte(content), o); err != nil || changed != wantChanged {
		t.Fatalf("Write(%q) = %v, %v; want %v", content, changed, err, wantChanged)
	}
}

func writeFile(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != content {
		t.Errorf("%s holds %d bytes, %v; want %d", path, len(got), err, len(content))
	}
	if info := stat(t, path); hasOwners && info.Mode() != mode {
		t.Errorf("%s has mode %v, want %v", path, info.Mode(), mode)
	}
}

func wantAlone(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var others []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), filepath.Base(path)+".") {
			others = append(others, entry.Name())
		}
	}
	if diff := cmp.Diff([]string(nil), others); diff != "" {
		t.Errorf("left beside %s (-want +got):\n%s", path, diff)
	}
}

func stat(t *testing.T, path string) fs.FileInfo {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestAFailureSaysTheSameEachTime: callers that report each error once compare the texts.
func TestAFailureSaysTheSameEachTime(t *testing.T) {
	t.Parallel()
	directory := Directory{Path: t.TempDir()}
	name := strings.Repeat("x", 250) // leaves no room for a temporary name
	_, first := directory.Write(name, nil, Options{})
	_, second := directory.Write(name, nil, Options{})
	if first == nil || second == nil || first.Error() != second.Error() {
		t.Errorf("%v\n%v", first, second)
	}
	removed := errors.Join(nameless(&os.LinkError{Op: "renameat", Old: temporaryName("a"), New: "a", Err: fs.ErrPermission}))
	if got := removed.Error(); got != "renameat a temporary file: permission denied" || !errors.Is(removed, fs.ErrPermission) {
		t.Error(got)
	}
}
