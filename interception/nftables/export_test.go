// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"os"

	"github.com/meshcni/meshcni/internal/kernel"
)

// Through returns a dataplane that uses the kernel.Namespace that open returns.
func (d *Dataplane) Through(open func(in *os.File) kernel.Namespace) *Dataplane {
	through, _ := newDataplane(&Dataplane{backend: d.backend, foreign: d.foreign})
	through.backend.Kernel = open
	return through
}
