// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestLostMembersOfUntoldPods has another program flush the host's rules after a start of the
// agent, while the API server is away: the feed tells of no pod. The pods are captured again all
// the same.
func TestLostMembersOfUntoldPods(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web := n.pod()
	proxyPod, proxy := n.proxy()
	_, end := n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	end()
	a, _ := n.run()
	n.eventually("the proxy has its listeners", func() bool { return a.Status().Proxy.Connections == 1 })
	for range 2 {
		sandboxtest.Run(t, n.options.Host.File(), "", "nft", "flush", "ruleset")
		n.eventually("the members are back", func() bool { return len(n.members()) == len(web.Addresses) })
		n.wantMembers(web)
		n.wantWay(web, proxy, captured)
	}
	n.feed <- told(proxyPod)
	n.eventually("a pod that is gone has none", func() bool { return len(n.members()) == 0 })
	sandboxtest.Run(t, n.options.Host.File(), "", "nft", "flush", "ruleset")
	n.eventually("the rules are back", func() bool { return strings.Contains(n.dump(), string(owner)) && n.isRight() })
	n.wantMembers()
}
