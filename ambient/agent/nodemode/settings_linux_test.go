// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/nodemode"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestSettingsAreNotFought has another program write a setting of the capture back: the agent
// writes it once and then waits, says so, and heals other things meanwhile.
func TestSettingsAreNotFought(t *testing.T) {
	t.Parallel()
	for name, round := range map[string]time.Duration{"waits": time.Hour, "writes again": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, backends(t)["nftables"])
			n.options.Round, n.options.SettingsRound = 20*time.Millisecond, round
			web := n.pod()
			proxyPod, proxy := n.proxy()
			n.run()
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			host := n.options.Host.File()
			const key = "net.ipv4.conf.istioout.rp_filter"
			write := func() { sandboxtest.Run(t, host, "", "sysctl", "-q", "-w", key+"=1") }
			read := func() string { return strings.TrimSpace(sandboxtest.Run(t, host, "", "sysctl", "-n", key)) }
			write()
			n.eventually("the setting is restored", func() bool { return read() == "2" })
			write()
			if round < time.Hour {
				n.eventually("the setting is restored again", func() bool { return read() == "2" })
				return
			}
			n.hostErrorIs("ipv4/conf/istioout/rp_filter")
			n.mu.Lock()
			err := n.host
			n.mu.Unlock()
			if !errors.Is(err, nodemode.ErrSettings) || !strings.HasSuffix(err.Error(), ", and have it leave the interface alone") {
				t.Errorf("%v, want ErrSettings that ends with what to do", err)
			}
			if got := read(); got != "1" {
				t.Errorf("%s is %s, want what the other program wrote", key, got)
			}
			sandboxtest.Run(t, host, "", "ip", "route", "flush", "table", "101")
			n.eventually("the route is restored", n.holds(web, proxy, captured))
		})
	}
}

// TestRefusedEditHasTheHostLookedAt has the kernel refuse one edit while the next look at the host
// is far away, because another program changes settings: pods join all the same.
func TestRefusedEditHasTheHostLookedAt(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	n.options.Round, n.options.SettingsRound = time.Hour, time.Hour
	sets := &refusing{SetEditor: n.options.Sets}
	n.options.Sets = sets
	web, late := n.pod(), n.pod()
	proxyPod, _ := n.proxy()
	a, _ := n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	const key = "net.ipv4.conf.istioout.rp_filter"
	run := func(command ...string) string { return sandboxtest.Run(t, n.options.Host.File(), "", command...) }
	disturb := func() { // nftables gives notice of the table
		run("sysctl", "-q", "-w", key+"=1")
		run("nft", "add table inet theirs; delete table inet theirs")
	}
	disturb()
	n.eventually("the setting is restored", func() bool { return strings.TrimSpace(run("sysctl", "-n", key)) == "2" })
	disturb()
	n.hostErrorIs(nodemode.ErrSettings.Error())
	sets.armed.Store(true)
	n.feed <- ambient.Change{Pods: []ambient.Pod{late}}
	n.await("the pod's error", func() bool {
		pods := a.Status(late.UID).Pods
		return len(pods) == 1 && pods[0].Err != nil
	})
	sets.armed.Store(false)
	n.awaitStatus(late.UID, ambient.StatusEnabled)
}
