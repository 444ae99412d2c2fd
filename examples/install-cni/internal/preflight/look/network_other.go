// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package look

import (
	"context"

	"github.com/meshcni/meshcni/ambient/collision"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight"
	"github.com/meshcni/meshcni/interception"
)

func within(*interception.Netns, *preflight.View) error { return interception.ErrUnsupported }

func standing(context.Context, *interception.Netns) (collision.Standing, error) {
	return collision.Standing{}, interception.ErrUnsupported
}

func missingTunnels(*interception.Netns) (string, error) { return "", interception.ErrUnsupported }
