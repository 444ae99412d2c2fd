// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package ambienttest

import (
	"context"
	"fmt"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

func startCommand(_ context.Context, o StartOptions) (Instance, error) {
	return nil, fmt.Errorf("start %s as the proxy: %w", o.Command, interception.ErrUnsupported)
}

// Witness needs Linux.
type Witness struct{}

// NewWitness returns an error that wraps [interception.ErrUnsupported].
func NewWitness(*interception.Netns, ambient.Numbers) (*Witness, error) {
	return nil, fmt.Errorf("watch a proxy: %w", interception.ErrUnsupported)
}

// Listening returns an error that wraps [interception.ErrUnsupported].
func Listening(*interception.Netns, ambient.Numbers) (bool, error) {
	return false, fmt.Errorf("look for a proxy's listeners: %w", interception.ErrUnsupported)
}

// Close needs Linux.
func (*Witness) Close() error { return nil }

// Listening needs Linux.
func (*Witness) Listening() (bool, error) { return false, nil }

// Relayed needs Linux.
func (*Witness) Relayed() (int, error) { return 0, nil }
