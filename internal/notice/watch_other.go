// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package notice

import (
	"context"
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// Watch needs Linux.
type Watch struct{}

// Open returns an error that wraps [interception.ErrUnsupported].
func Open() (*Watch, error) {
	return nil, fmt.Errorf("watch network namespaces: %w", interception.ErrUnsupported)
}

// Blind returns a watch that notices nothing.
func Blind() *Watch { return &Watch{} }

// Claim needs Linux.
func (*Watch) Claim(string, *interception.Netns) error { return interception.ErrUnsupported }

// Add needs Linux.
func (*Watch) Add(string, *interception.Netns) error { return interception.ErrUnsupported }

// Remove needs Linux.
func (*Watch) Remove(string) {}

// Next needs Linux.
func (*Watch) Next(context.Context) (Changed, error) {
	return Changed{}, interception.ErrUnsupported
}

// Close needs Linux.
func (*Watch) Close() error { return nil }
