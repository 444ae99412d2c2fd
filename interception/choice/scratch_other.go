// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package choice

import (
	"fmt"
	"runtime"

	"github.com/meshcni/meshcni/interception"
)

// NewScratch returns an error that wraps [interception.ErrUnsupported], except on Linux.
func NewScratch() (*interception.Netns, error) {
	return nil, fmt.Errorf("network namespaces on %s: %w", runtime.GOOS, interception.ErrUnsupported)
}
