// SPDX-License-Identifier: Apache-2.0

package spool_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/internal/spool"
)

func Example() {
	dir, err := os.MkdirTemp("", "spool")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	s := spool.Spool{Path: filepath.Join(dir, "results"), MaxBytes: 1 << 20}
	if err := s.Append([]byte(`{"command":"ADD"}`)); err != nil {
		fmt.Println(err)
	}
	err = s.Collect(context.Background(), func(lines [][]byte) error {
		fmt.Printf("%s\n", lines)
		return nil
	})
	fmt.Println(err)
	// Output:
	// [{"command":"ADD"}]
	// <nil>
}
