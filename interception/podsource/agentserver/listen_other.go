// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package agentserver

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/spool"
)

// Listen needs Linux.
func Listen(_ context.Context, runDir string) (net.Listener, error) {
	return nil, fmt.Errorf("listen on %s: %w", filepath.Join(runDir, podsource.AgentSocket), interception.ErrUnsupported)
}

// ListenIstioLog needs Linux.
func ListenIstioLog(_ context.Context, runDir string) (net.Listener, error) {
	return nil, fmt.Errorf("listen on %s: %w", filepath.Join(runDir, spool.IstioLogSocket), interception.ErrUnsupported)
}
