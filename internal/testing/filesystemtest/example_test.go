// SPDX-License-Identifier: Apache-2.0

package filesystemtest_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/testing/filesystemtest"
)

// A program that forgets to sync the file finds it empty, half written, full of zeros or complete
// after a power cut.
func ExampleDisk_PowerCuts() {
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)

	for _, kind := range []filesystemtest.Kind{filesystemtest.None, filesystemtest.Skipped} {
		disk, err := filesystemtest.NewDisk(root)
		if err != nil {
			fmt.Println(err)
			return
		}
		directory := filesystem.Directory{Path: root, Observer: &filesystemtest.Fault{Kind: kind, At: 4, Next: disk}}
		_, err = directory.Write("file", []byte(fmt.Sprint("content ", kind)), filesystem.Options{})
		fmt.Println(err)
		for _, tree := range disk.PowerCuts() {
			fmt.Printf("%q\n", tree["file"].Content)
		}
	}
	// Output:
	// <nil>
	// "content 0"
	// <nil>
	// "content 3"
	// ""
	// "cont"
	// "\x00\x00\x00\x00\x00\x00\x00\x00\x00"
}

// A file that is removed and recreated is found missing or empty after a kill or a power cut.
func ExampleCrashes() {
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)

	path := filepath.Join(root, "file")
	crashes := filesystemtest.Crashes{
		Root: root,
		Deed: func(_ string, o filesystem.Observer, _ *filesystemtest.Disk) {
			calls := []filesystem.Call{
				{Operation: filesystem.Remove, Path: path},
				{Operation: filesystem.Create, Path: path, Mode: 0o600},
				{Operation: filesystem.Write, Path: path, Data: []byte("new")},
			}
			does := []func() error{
				func() error { return os.Remove(path) }, func() error { return os.WriteFile(path, nil, 0o600) },
				func() error { return os.WriteFile(path, []byte("new"), 0o600) },
			}
			for i, call := range calls {
				_ = o.Observe(call, does[i])
			}
		},
		GoOn: func(where string, left filesystemtest.Tree, _ *filesystemtest.Disk) {
			fmt.Printf("%s: %v\n", where, left)
		},
		Same: func(t filesystemtest.Tree) filesystemtest.Tree { return t },
	}
	old := filesystemtest.Tree{"file": {Mode: 0o600, Content: "old"}}
	for call := range 3 {
		if err := crashes.EndBefore(call+1, old); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(crashes.Different(), "different things")
	// Output:
	// stopped before call 1 (remove file): map[file:{-rw------- old}]
	// stopped before call 1 (remove file), power cut 0: map[file:{-rw------- old}]
	// stopped before call 2 (create file): map[]
	// stopped before call 2 (create file), power cut 1: map[]
	// stopped before call 3 (write file): map[file:{-rw------- }]
	// stopped before call 3 (write file), power cut 2: map[file:{-rw------- }]
	// 6 different things
}
