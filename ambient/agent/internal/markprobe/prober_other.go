// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package markprobe

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// Prober is for Linux only.
type Prober struct{}

// Open returns [interception.ErrUnsupported].
func Open(*interception.Netns) (*Prober, error) { return nil, interception.ErrUnsupported }

// Close does nothing.
func (*Prober) Close() error { return nil }

// Marked returns [interception.ErrUnsupported].
func (*Prober) Marked(_, _ netip.Addr, _ interception.MarkBits) (bool, error) {
	return false, interception.ErrUnsupported
}
