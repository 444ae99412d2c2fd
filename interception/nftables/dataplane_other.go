// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package nftables

import (
	"context"
	"fmt"
	"runtime"

	"github.com/meshcni/meshcni/interception"
)

func newDataplane(*Dataplane) (*Dataplane, error) { return nil, notHere() }

func (d *Dataplane) apply(context.Context, *interception.Netns, *interception.Plan) error {
	return notHere()
}

func (d *Dataplane) remove(context.Context, *interception.Netns, interception.Owner) error {
	return notHere()
}

func (d *Dataplane) observe(context.Context, *interception.Netns, interception.Owner) (interception.State, error) {
	return interception.State{}, notHere()
}

func (d *Dataplane) remembered(context.Context, *interception.Netns, interception.Owner) ([]string, bool, error) {
	return nil, false, notHere()
}

func (d *Dataplane) removeRules(context.Context, *interception.Netns, interception.Owner) error {
	return notHere()
}

func supports(*interception.Plan) error { return notHere() }

func notHere() error {
	return fmt.Errorf("nf_tables on %s: %w", runtime.GOOS, interception.ErrUnsupported)
}
