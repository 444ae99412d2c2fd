// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/internal/atomicfile"
)

func ExampleWrite() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	path := filepath.Join(dir, "10-net.conflist")
	for range 2 {
		changed, err := atomicfile.Write(path, []byte("{}\n"), atomicfile.Options{Mode: 0o644})
		fmt.Println(changed, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}
