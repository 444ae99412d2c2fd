// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package netfacts

import (
	"fmt"
	"os"
	"runtime"

	"github.com/meshcni/meshcni/interception"
)

func read(*os.File) (interception.Facts, error) {
	return interception.Facts{}, fmt.Errorf("network namespaces on %s: %w", runtime.GOOS, interception.ErrUnsupported)
}
