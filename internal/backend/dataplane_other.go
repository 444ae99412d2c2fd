// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package backend

import (
	"context"

	"github.com/meshcni/meshcni/interception"
)

func (d *Dataplane) apply(context.Context, *interception.Netns, *interception.Plan) error {
	return interception.ErrUnsupported
}

func (d *Dataplane) remove(context.Context, *interception.Netns, interception.Owner) error {
	return interception.ErrUnsupported
}

func (d *Dataplane) claim(context.Context, *interception.Netns, interception.Owner) error {
	return interception.ErrUnsupported
}

func (d *Dataplane) observe(context.Context, *interception.Netns, interception.Owner) (interception.State, error) {
	return interception.State{}, interception.ErrUnsupported
}

// Remembered implements [Predecessor].
func (Heritage) Remembered(context.Context, *interception.Netns, interception.Owner) ([]string, bool, error) {
	return nil, false, interception.ErrUnsupported
}

// Members implements [Predecessor].
func (Heritage) Members(context.Context, *interception.Netns, interception.Owner) (Members, error) {
	return nil, interception.ErrUnsupported
}

// RemoveRules implements [Predecessor].
func (Heritage) RemoveRules(context.Context, *interception.Netns, interception.Owner) error {
	return interception.ErrUnsupported
}
