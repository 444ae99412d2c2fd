// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/nodemode"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/talk"
)

// TestWithdrawalWhereThePlanCannotBe withdraws all pods from a node whose numbers another program
// uses since: the agent cannot write its plan any more, and takes away what it has.
func TestWithdrawalWhereThePlanCannotBe(t *testing.T) {
	t.Parallel()
	for name, enrolled := range map[string]bool{"pods were captured before": true, "none ever was": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, backends(t)["nftables"])
			n.options.TakeOver, n.options.Closed = readers(t), true
			web := n.pod()
			before := n.dump()
			if enrolled {
				_, end := n.run()
				n.feed <- told(web)
				n.eventually("the pod has members", func() bool { return len(n.members()) > 0 })
				end()
			}
			theirs := func(edit string) {
				sandboxtest.Run(t, n.options.Host.File(), "", "iptables-nft", "-t", "mangle", edit, "PREROUTING", "-j", "MARK", "--set-mark", "0x100/0x100")
			}
			theirs("-A")
			a, _ := n.run()
			n.hostErrorIs(nodemode.ErrClash.Error())
			patience, enough := context.WithTimeout(t.Context(), 30*time.Second)
			defer enough()
			if err := a.Withdraw(patience, func(agent.Pod) {}); err != nil {
				t.Fatal(err)
			}
			theirs("-D")
			if after := n.dump(); after != before {
				t.Errorf("the host has\n%s\nwant\n%s", after, before)
			}
			if _, err := os.Stat(n.options.State); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the state file is still there: %v", err)
			}
		})
	}
}

// watched is a dataplane that notes before each removal what watch says.
type watched struct {
	backend

	watch func(in *interception.Netns)
}

func (w watched) Remove(ctx context.Context, in *interception.Netns, of interception.Owner) error {
	w.watch(in)
	return w.backend.Remove(ctx, in, of)
}

// TestStateFileGoesLast withdraws all pods: the state file is there as long as anything may be left
// on the host or in the proxy's namespace, so that the next agent finds that after a kill.
func TestStateFileGoesLast(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	var removals []interception.NetnsID
	dataplane := watched{backends(t)["nftables"], func(in *interception.Netns) {
		removals = append(removals, in.ID())
		if _, err := os.Stat(n.options.State); err != nil {
			t.Errorf("before a removal from %s: %v", in, err)
		}
	}}
	n.options.Dataplane = dataplane
	web := n.pod()
	proxyPod, _ := n.proxy()
	a, _ := n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.harm(a.Withdraw(t.Context(), func(agent.Pod) {}))
	if want := []interception.NetnsID{n.options.Host.ID(), n.places[proxyPod.UID].Netns.ID()}; !slices.Equal(removals, want) {
		t.Errorf("removed from %v, want %v", removals, want)
	}
	if _, err := os.Stat(n.options.State); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state file is still there: %v", err)
	}
}

// TestConnectionsByThePortOfTheNodeDrain withdraws all pods while a client has a connection with a
// pod by a port of the node, as services have. The proxy carries it, and the rules stay for it.
func TestConnectionsByThePortOfTheNodeDrain(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	n.options.DrainTimeout = time.Hour
	web := n.pod()
	talk.Echo(t, n.places[web.UID])
	proxyPod, proxy := n.proxy()
	node := netip.MustParseAddr("10.244.0.1")
	sandboxtest.Run(t, n.options.Host.File(), "", "nft", fmt.Sprintf("table ip theirs { chain pre { type nat hook prerouting priority dstnat; "+
		"ip daddr %s tcp dport %d dnat to %s; }; }", node, talk.Port, web.Addresses[0]))
	a, _ := n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	conn := talk.Call(t, n.remote, node)
	if err := talk.Say(conn, "hello"); err != nil || len(proxy.Takings()) == 0 {
		t.Fatalf("the proxy has taken no connection: %v", err)
	}
	hasty, enough := context.WithTimeout(t.Context(), time.Second)
	defer enough()
	if err := a.Withdraw(hasty, func(agent.Pod) {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Withdraw: %v, want that it waits for the connection", err)
	}
	if err := talk.Say(conn, "still there"); err != nil {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Withdraw(t.Context(), func(agent.Pod) {}); err != nil {
		t.Error(err)
	}
}

// TestConnectionsWithTheNodeNeedNoRules withdraws all pods while one has a connection with a
// program of the node itself, which no proxy carries: nothing waits for its end.
func TestConnectionsWithTheNodeNeedNoRules(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	n.options.DrainTimeout = time.Hour
	web := n.pod()
	host := *n.made.Host
	host.Addresses = []netip.Addr{netip.MustParseAddr("10.244.0.1")}
	talk.Echo(t, &host)
	proxyPod, _ := n.proxy()
	before := n.dump()
	a, _ := n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	if err := talk.Say(talk.Call(t, n.places[web.UID], host.Addresses[0]), "hello"); err != nil {
		t.Fatal(err)
	}
	patience, enough := context.WithTimeout(t.Context(), 30*time.Second)
	defer enough()
	if err := a.Withdraw(patience, func(agent.Pod) {}); err != nil {
		t.Error(err)
	}
	if after := n.dump(); after != before {
		t.Errorf("the host has\n%s\nwant\n%s", after, before)
	}
}
