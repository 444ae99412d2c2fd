// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestFlushOfTheHostIsHealed flushes all rules of the host while a pod is meshed, as a reload of
// firewalld does. The kernel's notice has the rules and the members back: no round comes for an
// hour. iptables-legacy gives no notice (E3).
func TestFlushOfTheHostIsHealed(t *testing.T) {
	t.Parallel()
	for name, dataplane := range backends(t) {
		if name == "iptables-"+string(iptables.Legacy) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dataplane)
			n.options.Round, n.options.ListenerRound, n.options.SettingsRound = time.Hour, time.Hour, time.Hour
			var healed atomic.Int64
			n.options.Count = func(c agent.Count) {
				n.news(func() {
					if c.What == agent.CountHealed && c.Of == "host" {
						healed.Add(int64(c.Times))
					}
				})
			}
			web := n.pod()
			proxyPod, proxy := n.proxy()
			n.run()
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.wantWay(web, proxy, captured)
			for range 3 {
				before, began := healed.Load(), time.Now()
				sandboxtest.Run(t, n.options.Host.File(), "", "nft", "flush", "ruleset")
				n.await(fmt.Sprintf("the rules after the flush %d", before+1), func() bool {
					return healed.Load() > before && len(n.members()) == len(web.Addresses)
				})
				t.Logf("the rules and the members are back %s after the flush", time.Since(began).Round(time.Millisecond))
				n.wantMembers(web)
				n.wantWay(web, proxy, captured)
			}
		})
	}
}
