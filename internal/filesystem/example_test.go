// SPDX-License-Identifier: Apache-2.0

package filesystem_test

import (
	"fmt"
	"os"

	"github.com/meshcni/meshcni/internal/filesystem"
)

func ExampleDirectory() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	networks := filesystem.Directory{Path: dir}
	for range 2 {
		changed, err := networks.Write("10-net.conflist", []byte("{}\n"), filesystem.Options{Mode: 0o644})
		fmt.Println(changed, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}
