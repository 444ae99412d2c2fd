// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"os"

	"github.com/meshcni/meshcni/internal/kernel"
)

// Through is a dataplane that reaches the kernel of a namespace through what open gives for it.
func (d *Dataplane) Through(open func(in *os.File) kernel.Namespace) *Dataplane {
	return &Dataplane{protocols: d.protocols, foreign: d.foreign, open: open}
}
