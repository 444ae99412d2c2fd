// SPDX-License-Identifier: Apache-2.0

package mounts_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/examples/install-cni/internal/mounts"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	table := filepath.Join(dir, "mountinfo") // mounts.Table in production
	is := func(root string) {
		if err := os.WriteFile(table, []byte("67 44 254:0 "+root+" / rw - ext4 /dev/vda rw\n"), 0o600); err != nil {
			fmt.Println(err)
		}
	}
	is("/etc/cni/net.d")
	m, err := mounts.New(table, dir)
	fmt.Println(m.Moved(), err)
	is("/etc/cni/net.d.bak")
	fmt.Println(errors.Is(m.Moved(), mounts.ErrMoved))
	// Output:
	// <nil> <nil>
	// true
}
