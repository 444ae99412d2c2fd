// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package ambienttest

import (
	"context"
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// Proxy needs Linux.
type Proxy struct{}

// StartProxy returns an error that wraps [interception.ErrUnsupported].
func StartProxy(ProxyOptions) (*Proxy, error) {
	return nil, fmt.Errorf("start a proxy: %w", interception.ErrUnsupported)
}

// Close needs Linux.
func (*Proxy) Close() error { return nil }

// Done needs Linux.
func (*Proxy) Done() <-chan struct{} { return nil }

// Serves needs Linux.
func (*Proxy) Serves(string) bool { return false }

// Relayed needs Linux.
func (*Proxy) Relayed() int { return 0 }

// LoseListeners needs Linux.
func (*Proxy) LoseListeners(...string) {}

// Drain needs Linux.
func (*Proxy) Drain(context.Context) {}
