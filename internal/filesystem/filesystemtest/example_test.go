// SPDX-License-Identifier: Apache-2.0

package filesystemtest_test

import (
	"fmt"
	"os"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/filesystem/filesystemtest"
)

// A program that forgets to sync the file finds it empty, half written, full of zeros or whole behind a power cut.
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
