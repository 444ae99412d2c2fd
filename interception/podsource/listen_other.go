// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package podsource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
)

// ListenAgent needs Linux.
func ListenAgent(_ context.Context, runDir string) (net.Listener, error) {
	return nil, fmt.Errorf("listen on %s: %w", filepath.Join(runDir, AgentSocket), errors.ErrUnsupported)
}

// ListenIstioLog needs Linux.
func ListenIstioLog(_ context.Context, runDir string) (net.Listener, error) {
	return nil, fmt.Errorf("listen on %s: %w", filepath.Join(runDir, IstioLogSocket), errors.ErrUnsupported)
}
