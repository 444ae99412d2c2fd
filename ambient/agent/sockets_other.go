// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package agent

import (
	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// sockets is what a proxy has in the namespace of a pod.
type sockets struct{ listening, connected bool }

func proxySockets(*interception.Netns, ambient.Numbers, func(sockets) bool) (sockets, error) {
	return sockets{}, interception.ErrUnsupported
}
