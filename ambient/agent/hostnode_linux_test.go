// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// hostNode is a node whose host reaches its pods, as the kubelet does. The agent finds the pods by
// their processes.
type hostNode struct {
	*node
	made   *nodes.Node
	places map[string]*nodes.Place // by UID
}

func newHostNode(t *testing.T, dataplane hostDataplane) *hostNode {
	t.Helper()
	n := &hostNode{node: newNode(t), made: nodes.New(t)[0], places: map[string]*nodes.Place{}}
	n.dataplane, n.options.Dataplane, n.options.Sets, n.options.Host = dataplane, dataplane, dataplane, n.made.Host.Netns
	finder, err := podnetns.NewFinder(n.made.Roots())
	if err != nil {
		t.Fatal(err)
	}
	n.options.Finder = finder
	return n
}

// start puts a running pod with an application on the node, and returns its object.
func (n *hostNode) start(families ...interception.Family) ambient.Pod {
	n.t.Helper()
	uid := fmt.Sprintf("1c6b2f1e-9d3c-4f7a-8a51-%012d", len(n.places))
	place := n.made.NewPod(uid, families...)
	n.places[uid] = place
	stop, err := place.Serve(8080)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(stop)
	pod := object(uid)
	pod.Addresses = place.Addresses
	return pod
}

// probe does what the kubelet's probes do: from the host, to each address of a pod. The error says
// how the application does not see a probe.
func (n *hostNode) probe(uid string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, address := range n.places[uid].Addresses {
		visit, err := n.made.Host.Visit(ctx, "tcp", netip.AddrPortFrom(address, 8080))
		if err != nil {
			return err
		}
		if !slices.Contains(n.options.Numbers.Probes, visit.Client.Addr()) {
			return fmt.Errorf("the application at %s sees the client %s", address, visit.Client)
		}
	}
	return nil
}

// mustProbe tests that probes of pods pass.
func (n *hostNode) mustProbe(pods ...ambient.Pod) {
	n.t.Helper()
	for _, pod := range pods {
		if err := n.probe(pod.UID); err != nil {
			n.t.Errorf("probe of pod %s: %v", pod.UID, err)
		}
	}
}

// eventually waits until a condition holds, of which nothing tells.
func eventually(t testing.TB, holds func() error) {
	t.Helper()
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			t.Fatal(err)
		}
	}
}

// uids returns the UIDs of pods as awaitSelection takes them.
func uids(pods ...ambient.Pod) (text string) {
	for i, pod := range pods {
		if i > 0 {
			text += " "
		}
		text += pod.UID
	}
	return text
}
