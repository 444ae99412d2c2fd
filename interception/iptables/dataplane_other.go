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

func (d *Dataplane) apply(context.Context, *interception.Netns, *interception.Plan) error {
	return interception.ErrUnsupported
}

func (d *Dataplane) observe(context.Context, *interception.Netns, interception.Owner) (interception.State, error) {
	return interception.State{}, interception.ErrUnsupported
}

func (d *Dataplane) remove(context.Context, *interception.Netns, interception.Owner) error {
	return interception.ErrUnsupported
}

func (d *Dataplane) remembered(context.Context, *interception.Netns, interception.Owner) ([]string, bool, error) {
	return nil, false, interception.ErrUnsupported
}

func (d *Dataplane) removeRules(context.Context, *interception.Netns, interception.Owner) error {
	return interception.ErrUnsupported
}
