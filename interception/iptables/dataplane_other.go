// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package iptables

import (
	"context"
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

func newDataplane(*Dataplane) (*Dataplane, error) {
	return nil, fmt.Errorf("iptables dataplane: %w on this operating system: it needs Linux", interception.ErrUnsupported)
}

// indices need Linux.
type indices struct{}

func (*Dataplane) updateSet(
	context.Context, *interception.Netns, interception.Owner, interception.SetName, interception.SetEdit,
) error {
	return fmt.Errorf("iptables dataplane: %w", interception.ErrUnsupported)
}

func (*Dataplane) tally(context.Context, *interception.Netns, interception.Owner, []interception.SetName) (string, error) {
	return "", fmt.Errorf("iptables dataplane: %w", interception.ErrUnsupported)
}

func (*Dataplane) removeUnusedSets(context.Context, *interception.Netns, []string) error {
	return fmt.Errorf("iptables dataplane: %w", interception.ErrUnsupported)
}

func (*Dataplane) removeForeign(context.Context, *interception.Netns, []interception.ForeignChain) error {
	return fmt.Errorf("iptables dataplane: %w", interception.ErrUnsupported)
}
