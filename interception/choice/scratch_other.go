// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package choice

import (
	"fmt"
	"runtime"

	"github.com/meshcni/meshcni/interception"
)

// NewScratch is there on Linux only.
func NewScratch() (*interception.Netns, error) {
	return nil, fmt.Errorf("network namespaces on %s: %w", runtime.GOOS, interception.ErrUnsupported)
}
