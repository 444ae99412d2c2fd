// SPDX-License-Identifier: Apache-2.0

package filesystem_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/testing/filesystemtest"
)

type (
	tree = filesystemtest.Tree
	file = filesystemtest.File
)

// job is an operation between two states of a tree. No third state may ever be visible.
type job struct {
	before, after tree
	do            func(d filesystem.Directory) error
}

var errNothingDone = errors.New("nothing was done")

func done(changed bool, err error) error {
	if err == nil && !changed {
		return errNothingDone
	}
	return err
}

func jobs() map[string]job {
	long := strings.Repeat("0123456789abcdef", 20_000) // needs several writes
	one := func(content string, mode fs.FileMode) tree { return tree{"d": dir(), "d/f": regular(mode, content)} }
	return map[string]job{
		"make":    {one("old", 0o600), tree{"d": dir(), "d/f": regular(0o600, "old"), "d/g": regular(0o644, "new")}, write("g", "new", filesystem.Options{Mode: 0o644})},
		"replace": {one("old", 0o600), one("new, and longer", 0o600), write("f", "new, and longer", filesystem.Options{})},
		"keep the look": {one("old", 0o640), one("new", 0o640), func(d filesystem.Directory) error {
			return done(d.Write("f", []byte("new"), filesystem.Options{Like: "f", Expect: []byte("old")}))
		}},
		"correct the mode": {one("same", 0o644), one("same", 0o600), write("f", "same", filesystem.Options{})},
		"empty":            {one("old", 0o600), one("", 0o644), write("f", "", filesystem.Options{Mode: 0o644})},
		"copy": {
			tree{"d": dir(), "d/f": regular(0o755, "old"), "from": dir(), "from/f": regular(0o644, long)},
			tree{"d": dir(), "d/f": regular(0o755, long), "from": dir(), "from/f": regular(0o644, long)},
			func(d filesystem.Directory) error {
				from := filesystem.Directory{Path: filepath.Join(filepath.Dir(d.Path), "from")}
				return done(d.CopyAs(from, "f", "f", filesystem.Options{Mode: 0o755}))
			},
		},
		"remove": {one("old", 0o600), tree{"d": dir()}, func(d filesystem.Directory) error { return done(d.Remove("f")) }},
		"remove expected": {one("old", 0o600), tree{"d": dir()}, func(d filesystem.Directory) error {
			return done(d.RemoveExpected("f", []byte("old")))
		}},
	}
}

func regular(mode fs.FileMode, content string) file { return file{Mode: mode, Content: content} }

func dir() file { return file{Mode: fs.ModeDir | 0o755} }

func write(name, content string, o filesystem.Options) func(filesystem.Directory) error {
	return func(d filesystem.Directory) error { return done(d.Write(name, []byte(content), o)) }
}

func (j job) start(t *testing.T) (root string, disk *filesystemtest.Disk) {
	t.Helper()
	root = t.TempDir()
	if err := j.before.Materialise(root); err != nil {
		t.Fatal(err)
	}
	disk, err := filesystemtest.NewDisk(root)
	if err != nil {
		t.Fatal(err)
	}
	return root, disk
}

func (j job) run(root string, o filesystem.Observer) error {
	return j.do(filesystem.Directory{Path: filepath.Join(root, "d"), Observer: o})
}

func (j job) calls(t *testing.T) []filesystem.Call {
	t.Helper()
	root, _ := j.start(t)
	var calls []filesystem.Call
	err := j.run(root, filesystemtest.Func(func(call filesystem.Call, do func() error) error {
		calls = append(calls, call)
		return do()
	}))
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// wrong describes what is wrong with a tree, temporary files aside, or returns nothing.
func wrong(got tree, may ...tree) string {
	got = maps.Clone(got)
	maps.DeleteFunc(got, func(name string, _ file) bool { return filesystem.IsTemporary(filepath.Base(name)) })
	if slices.ContainsFunc(may, func(want tree) bool { return maps.Equal(want, got) }) {
		return ""
	}
	return fmt.Sprintf("%.300v", got)
}

// powerCuts runs the job, and describes any wrong tree that a power cut would leave.
func (j job) powerCuts(t *testing.T, fault *filesystemtest.Fault) string {
	t.Helper()
	root, disk := j.start(t)
	fault.Next = disk
	var found string
	look := func(when string, may ...tree) {
		for _, cut := range disk.PowerCuts() {
			if text := wrong(cut, may...); text != "" && found == "" {
				found = when + ": " + text
			}
		}
	}
	err := j.run(root, filesystemtest.Func(func(call filesystem.Call, do func() error) error {
		err := fault.Observe(call, do)
		look("after "+call.Operation.String(), j.before, j.after)
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
	look("at the end", j.after)
	return found
}

func TestPowerCutsLeaveTheOldOrTheNew(t *testing.T) {
	t.Parallel()
	for name, j := range jobs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if found := j.powerCuts(t, &filesystemtest.Fault{}); found != "" {
				t.Error(found)
			}
		})
	}
}

// TestEachSyncIsNeeded omits one at a time.
func TestEachSyncIsNeeded(t *testing.T) {
	t.Parallel()
	for name, j := range jobs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried := 0
			for i, call := range j.calls(t) {
				if call.Operation != filesystem.Sync && call.Operation != filesystem.SyncDirectory {
					continue
				}
				if j.powerCuts(t, &filesystemtest.Fault{Kind: filesystemtest.Skipped, At: i + 1}) == "" {
					t.Errorf("without call %d, %v, nothing gets lost", i+1, call.Operation)
				}
				tried++
			}
			if tried == 0 {
				t.Error("nothing is synced")
			}
		})
	}
}

func TestFailuresAndStopsLeaveTheOldOrTheNew(t *testing.T) {
	t.Parallel()
	for name, j := range jobs() {
		for i, call := range j.calls(t) {
			for _, kind := range []filesystemtest.Kind{filesystemtest.Refused, filesystemtest.Lost, filesystemtest.Stopped} {
				t.Run(fmt.Sprintf("%s/%d %v, kind %d", name, i+1, call.Operation, kind), func(t *testing.T) {
					t.Parallel()
					j.fail(t, &filesystemtest.Fault{Kind: kind, At: i + 1})
				})
			}
		}
	}
}

// fail makes a call of the job fail, and then repeats the job.
func (j job) fail(t *testing.T, fault *filesystemtest.Fault) {
	t.Helper()
	root, _ := j.start(t)
	if err := j.run(root, fault); !errors.Is(err, filesystemtest.ErrInjected) {
		t.Errorf("the failure isn't told: %v", err)
	} else if errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the failure looks like a missing file: %v", err)
	}
	left := read(t, root)
	if text := wrong(left, j.before, j.after); text != "" {
		t.Errorf("after the failure: %s", text)
	}
	if fault.Kind != filesystemtest.Stopped {
		for name := range left {
			if filesystem.IsTemporary(filepath.Base(name)) {
				t.Errorf("left behind: %s", name)
			}
		}
	}
	if err := j.run(root, nil); err != nil && !errors.Is(err, errNothingDone) {
		t.Error(err)
	}
	if _, err := (filesystem.Directory{Path: filepath.Join(root, "d")}).RemoveStale(time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(j.after, read(t, root)); diff != "" {
		t.Errorf("done again (-want +got):\n%s", diff)
	}
}

func read(t *testing.T, root string) tree {
	t.Helper()
	found, err := filesystemtest.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestMakeDirectory(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	disk, err := filesystemtest.NewDisk(root)
	if err != nil {
		t.Fatal(err)
	}
	d := filesystem.Directory{Path: filepath.Join(root, "a", "b"), Observer: disk}
	want := tree{"a": {Mode: fs.ModeDir | 0o750}, "a/b": {Mode: fs.ModeDir | 0o750}}
	for range 2 {
		if err := d.Make(0o750); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]tree{want}, disk.PowerCuts()); diff != "" {
			t.Errorf("after a power cut (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(want, read(t, root)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (filesystem.Directory{Path: filepath.Join(root, "file")}).Make(0o750); err == nil || !strings.Contains(err.Error(), "in the way") {
		t.Errorf("Make over a file: %v", err)
	}
}

// TestSyncMakesUpForAKilledProcess has a process find what another one has changed and not synced.
func TestSyncMakesUpForAKilledProcess(t *testing.T) {
	t.Parallel()
	j := jobs()["replace"]
	root, disk := j.start(t)
	fault := &filesystemtest.Fault{Kind: filesystemtest.Stopped, At: len(j.calls(t)), Next: disk}
	if err := j.run(root, fault); !errors.Is(err, filesystemtest.ErrInjected) || fault.Hit().Operation != filesystem.SyncDirectory {
		t.Fatalf("%v at %v", err, fault.Hit())
	}
	if got := len(disk.PowerCuts()); got < 2 {
		t.Errorf("%d possible trees before the sync", got)
	}
	d := filesystem.Directory{Path: filepath.Join(root, "d"), Observer: disk}
	if changed, err := d.Write("f", []byte(j.after["d/f"].Content), filesystem.Options{}); err != nil || changed {
		t.Errorf("Write = %v, %v; want nothing to do", changed, err)
	}
	if err := d.Sync(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]tree{j.after}, disk.PowerCuts()); diff != "" {
		t.Errorf("after a power cut (-want +got):\n%s", diff)
	}
}

func TestNamesThatLeadElsewhere(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	before := tree{"d": dir(), "d/sub": dir(), "d/sub/f": regular(0o600, "old"), "f": regular(0o600, "old")}
	if err := before.Materialise(root); err != nil {
		t.Fatal(err)
	}
	d := filesystem.Directory{Path: filepath.Join(root, "d")}
	for _, name := range []string{"", ".", "..", "../f", "sub/f", "/f", filepath.Join(root, "f"), "sub/", "./f"} {
		_, writeErr := d.Write(name, nil, filesystem.Options{})
		_, likeErr := d.Write("g", nil, filesystem.Options{Like: name})
		_, copyErr := d.CopyAs(filesystem.Directory{Path: root}, name, name, filesystem.Options{})
		_, removeErr := d.Remove(name)
		_, expectedErr := d.RemoveExpected(name, []byte("old"))
		_, readErr := d.Read(name, 100)
		_, statErr := d.Stat(name)
		for what, err := range map[string]error{
			"Write": writeErr, "Like": likeErr, "CopyAs": copyErr, "Remove": removeErr, "RemoveExpected": expectedErr, "Read": readErr, "Stat": statErr,
		} {
			if what == "Like" && name == "" {
				continue // an empty Like names no file
			}
			if !errors.Is(err, filesystem.ErrName) {
				t.Errorf("%s of %q: %v, want ErrName", what, name, err)
			}
		}
	}
	after := read(t, root)
	delete(after, "d/g")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
