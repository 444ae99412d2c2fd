// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package ambienttest

import (
	"context"
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// NodeProxy needs Linux.
type NodeProxy struct{}

// StartNodeProxy returns an error that wraps [interception.ErrUnsupported].
func StartNodeProxy(NodeProxyOptions) (*NodeProxy, error) {
	return nil, fmt.Errorf("start a node's proxy: %w", interception.ErrUnsupported)
}

// Close needs Linux.
func (*NodeProxy) Close() error { return nil }

// Drain needs Linux.
func (*NodeProxy) Drain(context.Context) {}

// Relayed needs Linux.
func (*NodeProxy) Relayed() int { return 0 }
