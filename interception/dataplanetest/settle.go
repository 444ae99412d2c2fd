// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"fmt"
)

// Settle waits until the kernel has delivered every packet that was sent before the call, with the
// answers that the kernel gives by itself. What has not arrived by then was dropped. Settle takes
// no fixed time: after each packet on its way it sends one that must arrive, and waits for that.
//
// It knows nothing of answers that a process has still to write, of packets that TCP will repeat,
// and of packets that a dataplane holds outside of the kernel's own queues.
func (p *Pod) Settle(ctx context.Context) error {
	if err := p.network.settle(ctx); err != nil {
		return fmt.Errorf("wait for packets on their way: %w", err)
	}
	return nil
}
