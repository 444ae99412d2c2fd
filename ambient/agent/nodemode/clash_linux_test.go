// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"testing"

	"github.com/meshcni/meshcni/ambient"
)

// TestOwnRulesDoNotClash starts an agent where the rules of one before stand that package iptables
// has written: package nftables reads them, too, and they are no other program's. The first agent
// has no proxy at first, so that the rules with a proxy's interfaces come second.
func TestOwnRulesDoNotClash(t *testing.T) {
	t.Parallel()
	for name, dataplane := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dataplane)
			n.options.TakeOver = readers(t)
			first, second := n.pod(), n.pod()
			_, end := n.run()
			n.feed <- told(first)
			n.eventually("the rules without a proxy", func() bool {
				state, err := dataplane.Observe(t.Context(), n.options.Host, owner)
				return err == nil && len(state.Objects) > 0
			})
			proxyPod, proxy := n.proxy()
			n.feed <- ambient.Change{Pods: []ambient.Pod{proxyPod}}
			n.awaitStatus(first.UID, ambient.StatusEnabled)
			end()
			n.run()
			n.feed <- told(proxyPod, first, second)
			n.awaitStatus(second.UID, ambient.StatusEnabled)
			n.wantWay(second, proxy, captured)
		})
	}
}
