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

// TestRefusedEditHasTheHostLookedAt has the kernel refuse some edits while the next look at the
// host is far away, because another program changes settings: pods join all the same.
func TestRefusedEditHasTheHostLookedAt(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	n.options.Round, n.options.SettingsRound = time.Hour, time.Hour
	sets := &refusing{SetEditor: n.options.Sets}
	n.options.Sets = sets
	web, late := n.pod(), n.pod()
	proxyPod, _ := n.proxy()
	n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	run := func(command ...string) { sandboxtest.Run(t, n.options.Host.File(), "", command...) }
	n.eventually("the agent does not fight", func() bool {
		run("sysctl", "-q", "-w", "net.ipv4.conf.istioout.rp_filter=1")
		run("nft", "add", "table", "inet", "theirs") // of which nftables gives notice
		run("nft", "delete", "table", "inet", "theirs")
		n.mu.Lock()
		defer n.mu.Unlock()
		return errors.Is(n.host, nodemode.ErrSettings)
	})
	sets.times.Store(6) // more often than what is left of the notices has the host looked at
	n.feed <- ambient.Change{Pods: []ambient.Pod{late}}
	n.awaitStatus(late.UID, ambient.StatusEnabled)
}
