// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/upstreamtest"
)

// claimer is a dataplane that can take over what serves its plans.
type claimer interface {
	interception.Dataplane
	Claim(ctx context.Context, ns *interception.Netns, owner interception.Owner) error
}

// policies returns the namespace's policy rules and the routes of the replies' table.
func policies(t *testing.T, pod *sandboxtest.Pod) string {
	t.Helper()
	var all string
	for _, family := range []string{"-4", "-6"} {
		all += pod.Run(t, "", "ip", family, "rule")
		for line := range strings.Lines(pod.Run(t, "", "ip", family, "route", "show", "table", "all")) {
			if strings.Contains(line, "table 100 ") {
				all += line
			}
		}
	}
	return all
}

// deliverReplies asks for the route of a reply, again and again until the context ends, and fails
// when it is not delivered in the pod. It closes ready after the first answer.
func deliverReplies(ctx context.Context, t *testing.T, pod *sandboxtest.Pod, ready chan<- struct{}) {
	t.Helper()
	handle, err := netlink.NewHandleAt(netns.NsHandle(pod.File().Fd()))
	if err != nil {
		t.Error(err)
		close(ready)
		return
	}
	defer handle.Close()
	for first := true; ctx.Err() == nil; first = false {
		for _, address := range []string{"192.0.2.9", "2001:db8::9"} {
			routes, err := handle.RouteGetWithOptions(net.ParseIP(address), &netlink.RouteGetOptions{Mark: 0x111})
			if err != nil || len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL {
				t.Errorf("a reply to %s is not delivered in the pod: %v, %v", address, routes, err)
			}
		}
		if first {
			close(ready)
		}
	}
}

// TestClaim takes over the routes and policy rules that Istio's agent has left: they serve the
// replies at every moment, and go with the plan. Unclaimed they stay.
func TestClaim(t *testing.T) {
	t.Parallel()
	for name, backend := range backends(t) {
		for _, claims := range []int{0, 1, 2} { // the second call finds nothing to do
			t.Run(fmt.Sprintf("%s %d", name, claims), func(t *testing.T) {
				t.Parallel()
				dataplane, is := backend.(claimer)
				if !is {
					t.Fatal("the dataplane cannot claim")
				}
				testClaim(t, dataplane, claims)
			})
		}
	}
}

func testClaim(t *testing.T, dataplane claimer, claims int) {
	t.Helper()
	pod, plan := sandboxtest.NewPod(t), planOf(t, "")
	pod.Run(t, "", "ip", "link", "set", "lo", "up")
	if err := dataplane.Claim(t.Context(), pod.Netns, plan.Owner); err != nil {
		t.Errorf("in an empty namespace: %v", err)
	}
	left := policies(t, pod)
	upstreamtest.Install(t, pod.File(), upstream.PodRules{Generation: upstream.GenerationRedirect, IPv6: true}, upstreamtest.IPTablesNFT)
	if claims == 0 {
		left = policies(t, pod)
	}
	if err := dataplane.Apply(t.Context(), pod.Netns, plan); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		deliverReplies(ctx, t, pod, ready)
	}()
	<-ready
	for range claims {
		if err := dataplane.Claim(t.Context(), pod.Netns, plan.Owner); err != nil {
			t.Error(err)
		}
	}
	end()
	<-done
	// The record of what was found is in the comments of the owner's rules.
	comments := pod.Run(t, "", "nft", "list", "ruleset") + pod.Run(t, "", "iptables-nft-save") + pod.Run(t, "", "iptables-legacy-save")
	if recorded := strings.Contains(comments, "found route"); recorded != (claims == 0) {
		t.Errorf("after %d claims, the route is recorded as another program's: %t", claims, recorded)
	}
	for range 2 {
		state, err := dataplane.Observe(t.Context(), pod.Netns, plan.Owner)
		if drift := interception.Diff(plan, state); err != nil || drift != nil {
			t.Errorf("drift %v, %v", drift, err)
		}
		if err := dataplane.Apply(t.Context(), pod.Netns, plan); err != nil {
			t.Error(err)
		}
	}
	if err := dataplane.Remove(t.Context(), pod.Netns, plan.Owner); err != nil {
		t.Error(err)
	}
	if after := policies(t, pod); after != left {
		t.Errorf("after Remove:\n%s\nwant:\n%s", after, left)
	}
}
