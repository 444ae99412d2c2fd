// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/upstreamtest"
)

// unwanted is pod a as the API server has it when Istio's agent has enrolled it, and its label went
// while no agent ran.
func unwanted() ambient.Pod {
	pod := optedOut("a")
	pod.Annotations = map[string]string{ambient.Istio().Status: string(ambient.StatusEnabled)}
	return pod
}

// enrolledByIstio returns a node with pod a that Istio's agent has enrolled.
func enrolledByIstio(t *testing.T, u upstream.PodRules, program upstreamtest.Program) (*node, *dataplanetest.Pod) {
	t.Helper()
	n := newNode(t)
	n.options.TakeOver = readers(t)
	pod := n.pod("a")
	n.formerAgent(pod, u.Generation == upstream.GenerationTProxy)
	upstreamtest.Install(t, pod.File(), u, program)
	return n, pod
}

// expectDirect expects that the pod left the mesh: nothing of either agent is left, and new
// connections go direct.
func (n *node) expectDirect(a *Agent, pod *dataplanetest.Pod) {
	n.t.Helper()
	n.awaitRest(a)
	n.awaitStatus(a, "a", ambient.NoStatus)
	n.connect(pod, 0)
	inside, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	defer inside.Close()
	w := &worker{agent: a, namespace: inside}
	if has, err := n.options.hasUpstream(n.t.Context(), w); has || err != nil || n.captured(pod) || len(n.records()) > 0 {
		n.t.Errorf("rules of Istio's agent %t, of this one %t, %v, records %v, want none", has, n.captured(pod), err, n.records())
	}
}

// TestUnwantedPod withdraws a pod that Istio's agent has enrolled, and that is not wanted any more:
// its connections live on, new ones go direct, and nothing is left when the former have ended.
func TestUnwantedPod(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		generation upstream.Generation
		program    upstreamtest.Program
	}{
		{upstream.GenerationNative, upstreamtest.NFT},
		{upstream.GenerationRedirect, upstreamtest.IPTablesLegacy},
		{upstream.GenerationTProxy, upstreamtest.IPTablesNFT},
	} {
		t.Run(fmt.Sprint(test.program, " ", test.generation), func(t *testing.T) {
			t.Parallel()
			n, pod := enrolledByIstio(t, upstream.PodRules{Generation: test.generation, IPv6: true}, test.program)
			before := n.relayed(pod)
			living := n.open(pod)
			if n.relayed(pod) == before {
				t.Fatal("the rules of Istio's agent do not capture")
			}
			a, _ := n.run()
			n.proxy()
			n.feed <- told(unwanted())
			n.awaitPods(a, "that it waits for the connection's end", func(pods []Pod) bool {
				return len(pods) == 1 && pods[0].Step == ambient.StepAwaitDrained
			})
			n.connect(pod, 0)
			n.exchange(living)
			if err := living.Close(); err != nil {
				t.Error(err)
			}
			n.expectDirect(a, pod)
		})
	}
}

// TestUnwantedPodOfChangedRules leaves a pod as it is in which some program has changed the rules
// of Istio's agent, until the change is undone.
func TestUnwantedPodOfChangedRules(t *testing.T) {
	t.Parallel()
	n, pod := enrolledByIstio(t, upstream.PodRules{Generation: upstream.GenerationRedirect, IPv6: true}, upstreamtest.IPTablesNFT)
	change := func(verb string) {
		sandboxtest.Run(t, pod.File(), "", "iptables-nft", "-t", "nat", verb, "ISTIO_OUTPUT", "-p", "tcp", "--dport", "9", "-j", "RETURN")
	}
	change("-A")
	a, _ := n.run()
	n.feed <- told(unwanted())
	n.awaitPods(a, "ErrUpstream", func(pods []Pod) bool { return len(pods) == 1 && errors.Is(pods[0].Err, ErrUpstream) })
	n.connect(pod, 1)
	if n.captured(pod) || len(n.records()) > 0 {
		t.Error("the agent has applied rules of its own")
	}
	change("-D")
	n.proxy() // it does not know the pod
	n.expectDirect(a, pod)
}

// keeping is a foreign dataplane that a test has fail to remove what it finds.
type keeping struct {
	ForeignDataplane
	failed atomic.Bool
}

func (k *keeping) RemoveForeign(context.Context, *interception.Netns, []interception.ForeignChain) error {
	k.failed.Store(true)
	return errBroken
}

// TestUnwantedPodAfterRestart ends the agent when it has applied its own rules, and those of
// Istio's agent are still there: the next agent withdraws the pod nevertheless.
func TestUnwantedPodAfterRestart(t *testing.T) {
	t.Parallel()
	n, pod := enrolledByIstio(t, upstream.PodRules{Generation: upstream.GenerationNative, IPv6: true}, upstreamtest.NFT)
	able := n.options.TakeOver
	stuck := &keeping{ForeignDataplane: able[0]}
	n.options.TakeOver = []ForeignDataplane{stuck}
	_, end := n.run()
	n.feed <- told(unwanted())
	n.await(func() bool { return stuck.failed.Load() && len(n.records()) == 1 }, func() string { return "no rules are removed" })
	end()
	n.options.TakeOver = able
	a, _ := n.run()
	n.proxy()
	n.feed <- told(unwanted())
	n.expectDirect(a, pod)
}
