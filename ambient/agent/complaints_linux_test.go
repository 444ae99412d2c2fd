// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// The tests of this file, and of the files complaint_*_linux_test.go, are named after what users of
// ambient mode complain of. docs/ambient-complaints.md lists the complaints (E1 and so on).

// TestStatusShowsWhatStands has an enrolled pod lose its rules, and the kernel refuse them: the
// status does not go on to call it enabled (E1). The annotation does, as TestStatusOfNewPod shows.
func TestStatusShowsWhatStands(t *testing.T) {
	t.Parallel()
	n, b := newBreakable(t)
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	b.apply.Store(true)
	inside, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	n.flush(inside)
	n.awaitPods(a, "that the rules are missing, and why", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Seen.Rules != ambient.PlannedRules && pods[0].Seen.Status == ambient.StatusPending &&
			pods[0].Step == ambient.StepApply && errors.Is(pods[0].Err, errBroken)
	})
	b.apply.Store(false)
	n.awaitSeen(a, "a", ambient.StatusEnabled)
	n.connect(pod, 1)
}

// TestEnabledPodWithoutRulesIsRepaired has a running pod that is annotated as enabled, without
// rules, record or proxy, as after an ADD that no plugin saw. The agent does not believe the
// annotation (E1).
func TestEnabledPodWithoutRulesIsRepaired(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	annotated := object("a")
	annotated.Annotations = map[string]string{"ambient.istio.io/redirection": "enabled"}
	n.feed <- told(annotated)
	n.awaitSelection(a, "a")
	if !n.captured(pod) || !n.served(pod) || !n.member("a") {
		t.Errorf("captured %t, served %t, member %t, want all", n.captured(pod), n.served(pod), n.member("a"))
	}
	n.connect(pod, 1)
}

// TestProbesSurviveAKubeletRestart has the API server know no address of the pods for a while, in
// which the agent begins anew, first without a complete view: no probe fails (E2).
func TestProbesSurviveAKubeletRestart(t *testing.T) {
	t.Parallel()
	n := newHostNode(t, hostDataplanes(t)["nftables"])
	one, other := n.start(families()...), n.start(families()...)
	n.proxy()
	first, end := n.run()
	n.feed <- told(one, other)
	n.awaitSelection(first, uids(one, other))
	n.mustProbe(one, other)
	members := n.members()
	end()
	second, _ := n.run()
	without, otherWithout := one, other
	without.Addresses, otherWithout.Addresses = nil, nil
	incomplete := told(without)
	incomplete.Complete = false
	n.feed <- incomplete
	n.awaitPods(second, "that one pod is served, and the other one by its record", func(pods []Pod) bool {
		return len(pods) == 2 && served(pods) == 2
	})
	n.mustProbe(one, other)
	n.feed <- told(otherWithout)
	n.awaitSelection(second, uids(one, other))
	n.mustProbe(one, other)
	n.feed <- told(one, other)
	n.awaitSelection(second, uids(one, other))
	n.mustProbe(one, other)
	if diff := cmp.Diff(members, n.members()); diff != "" || len(members) != 4 {
		t.Errorf("members of the host's sets (-before +after):\n%s", diff)
	}
}

// TestProbesSurviveFirewalldReload flushes all rules of the host, again and again. They are back
// long before a round: by the kernel's notice or, with iptables-legacy, as the rules are counted
// (E3).
func TestProbesSurviveFirewalldReload(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newHostNode(t, dataplane)
			pod := n.start(families()...)
			n.proxy()
			a, _ := n.run()
			n.feed <- told(pod)
			n.awaitSelection(a, pod.UID)
			n.mustProbe(pod)
			for range 3 {
				n.flushHost(name)
				flushed := time.Now()
				eventually(t, func() error { return n.probe(pod.UID) })
				t.Logf("probes pass %s after the flush", time.Since(flushed).Round(time.Millisecond))
			}
		})
	}
}

// flushHost removes the rules of all programs from the host, and tests that a probe needs them.
func (n *hostNode) flushHost(dataplane string) {
	n.t.Helper()
	in := n.made.Host.Netns.File()
	if dataplane != "iptables-"+string(iptables.Legacy) {
		sandboxtest.Run(n.t, in, "", "nft", "flush", "ruleset")
		return
	}
	for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
		for _, what := range []string{"-F", "-X"} {
			sandboxtest.Run(n.t, in, "", program, "-t", "nat", what)
		}
	}
}

// TestPodStartsOnceTheProxyIsThere has the plugin hand a pod over before the node's proxy runs: the
// pod waits, and starts without another attempt (E4, E30).
func TestPodStartsOnceTheProxyIsThere(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.TellTimeout = 10 * time.Millisecond
	pod := n.pod("a")
	delete(n.paths, "a")
	a, _ := n.run()
	n.feed <- told(object("a"))
	answer := make(chan error, 1)
	go func() {
		_, err := n.hand(t.Context(), a, "a", pod)
		answer <- err
	}()
	n.awaitPods(a, "that no proxy has connected", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepTell && errors.Is(pods[0].Err, zds.ErrNeverConnected)
	})
	if n.captured(pod) || len(answer) > 0 {
		t.Errorf("without a proxy, captured %t, answers %d", n.captured(pod), len(answer))
	}
	n.proxy()
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	n.connect(pod, 1)
}

// TestErrorSaysForWhomThePodWaits ends the plugin's wait while the proxy has never connected, has
// gone, or refuses the pod: the error says which (E4).
func TestErrorSaysForWhomThePodWaits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*node, *Agent)
		want    error
		text    string
	}{
		"never connected": {func(*node, *Agent) {}, zds.ErrNeverConnected, "no proxy has connected"},
		"gone": {func(n *node, a *Agent) {
			proxy := n.proxy()
			eventually(n.t, func() error { return connected(a, 1) })
			if err := proxy.Close(); err != nil {
				n.t.Error(err)
			}
			eventually(n.t, func() error { return connected(a, 0) })
		}, zds.ErrDisconnected, "since"},
		"refuses": {func(n *node, _ *Agent) {
			n.standIn(ambienttest.ProxyOptions{Refuse: func(zds.Workload) string { return "port 15001 is taken" }})
		}, zds.ErrRefused, "port 15001 is taken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.options.TellTimeout = 10 * time.Millisecond
			pod := n.pod("a")
			delete(n.paths, "a")
			a, _ := n.run()
			n.feed <- told(object("a"))
			test.prepare(n, a)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			answer := make(chan error, 1)
			go func() {
				_, err := n.hand(ctx, a, "a", pod)
				answer <- err
			}()
			n.awaitPods(a, "why the pod waits", func(pods []Pod) bool { return len(pods) == 1 && errors.Is(pods[0].Err, test.want) })
			cancel()
			if err := <-answer; !errors.Is(err, test.want) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("the plugin gets %v, want an error that says %q", err, test.text)
			}
		})
	}
}

// connected returns an error unless so many proxies are connected.
func connected(a *Agent, want int) error {
	if got := a.Status().Proxy.Connections; got != want {
		return fmt.Errorf("%d proxies are connected, want %d", got, want)
	}
	return nil
}

// TestPodsThatNoPluginSawAreFound has pods that ran before the agent and the plugin were installed:
// those that are eligible are found by their processes, and enrolled (E6).
func TestPodsThatNoPluginSawAreFound(t *testing.T) {
	t.Parallel()
	n := newHostNode(t, hostDataplanes(t)["nftables"])
	var pods []ambient.Pod
	for range 5 {
		pods = append(pods, n.start(families()...))
	}
	outside := pods[4]
	outside.Labels = nil
	n.proxy()
	a, _ := n.run()
	n.feed <- told(append(slices.Clone(pods[:4]), outside)...)
	n.awaitSelection(a, uids(pods[:4]...))
	for i, pod := range pods {
		from := n.places[pod.UID]
		witness := newWitness(t, from.Netns)
		visit, err := from.Visit(t.Context(), "tcp", netip.AddrPortFrom(outside.Addresses[0], 8080))
		relayed, wrong := witness.Relayed()
		if want := map[bool]int{true: 1}[i < 4]; err != nil || wrong != nil || relayed != want {
			t.Errorf("pod %d: %+v, %v; relayed %d times, %v, want %d", i, visit, err, relayed, wrong, want)
		}
	}
}
