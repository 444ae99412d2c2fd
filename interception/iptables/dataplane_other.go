// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package iptables

import (
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

func newDataplane(*Dataplane) (*Dataplane, error) {
	return nil, fmt.Errorf("iptables dataplane: %w on this operating system: it needs Linux", interception.ErrUnsupported)
}
