// SPDX-License-Identifier: Apache-2.0

package sandbox_test

import (
	"context"
	"fmt"
	"os"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// The main function of a program that needs privileges, but neither root nor the host.
func ExampleEnter() {
	_ = func(work func(sandbox.Info) int) {
		info, err := sandbox.Enter(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if !info.Inside {
			os.Exit(info.ExitCode)
		}
		os.Exit(work(info))
	}
}
