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

func supports(*interception.Plan) error { return notHere() }

func (d *Dataplane) updateSet(context.Context, *interception.Netns, interception.Owner, interception.SetName, interception.SetEdit) error {
	return notHere()
}

func (d *Dataplane) removeForeign(context.Context, *interception.Netns, []interception.ForeignChain) error {
	return notHere()
}

func notHere() error {
	return fmt.Errorf("nf_tables on %s: %w", runtime.GOOS, interception.ErrUnsupported)
}
