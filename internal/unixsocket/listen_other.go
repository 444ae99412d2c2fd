// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package unixsocket

import (
	"context"
	"fmt"
	"net"

	"github.com/meshcni/meshcni/interception"
)

// Listen needs Linux.
func Listen(_ context.Context, _, path string) (net.Listener, error) {
	return nil, fmt.Errorf("listen on %s: %w", path, interception.ErrUnsupported)
}
