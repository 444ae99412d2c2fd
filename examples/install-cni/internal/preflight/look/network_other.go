// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package look

import (
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight"
	"github.com/meshcni/meshcni/interception"
)

func within(*interception.Netns, *preflight.View) error { return interception.ErrUnsupported }
