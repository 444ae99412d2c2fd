// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/nodemode"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// TestProxyLacksAFamily has a proxy of IPv4 alone. A pod with both families is enabled with an
// error: its connections over IPv6 are refused, and none is direct. A pod of IPv6 alone is not
// captured, and waits. With a proxy of both families there is no error, and after it, with one of
// IPv4 again, the pod of IPv6 is pending, and no connection of it is direct.
func TestProxyLacksAFamily(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web, six := n.pod(), n.object(n.place(interception.IPv6))
	half := n.silentProxy(interception.IPv4)
	proxy := startOn(n, half)
	a, _ := n.run()
	lacks := func(uid, address string) func() bool {
		return func() bool {
			return slices.ContainsFunc(a.Status(uid).Pods, func(p agentPod) bool {
				return errors.Is(p.Err, nodemode.ErrFamily) && strings.Contains(p.Err.Error(), address) &&
					strings.HasSuffix(p.Err.Error(), "give the proxy's pod an address of each family of the pods, and have it listen for each")
			})
		}
	}
	n.feed <- told(half, web, six)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.await("the pod's error names IPv6", lacks(web.UID, web.Addresses[1].String()))
	n.await("the error of the pod of IPv6 alone", lacks(six.UID, six.Addresses[0].String()))
	n.wantWays(web, proxy, captured, refused)
	n.wantMembers(web)
	n.wantStatuses(six)
	whole, newer := n.proxy()
	n.feed <- ambient.Change{Pods: []ambient.Pod{whole}}
	n.awaitStatus(six.UID, ambient.StatusEnabled)
	n.await("no errors", func() bool {
		return !slices.ContainsFunc(a.Pods(), func(p agent.Pod) bool { return p.Err != nil || p.Step != "" })
	})
	n.wantWays(web, newer, captured, captured)
	again := n.silentProxy(interception.IPv4)
	last := startOn(n, again)
	n.feed <- ambient.Change{Pods: []ambient.Pod{again}}
	n.awaitSeen(a, six.UID, ambient.StatusPending)
	n.await("the pod's error names IPv6 again", lacks(web.UID, web.Addresses[1].String()))
	n.wantWays(web, last, captured, refused)
	n.wantMembers(web, six)
	if got, err := n.connect(n.places[six.UID], only(n.remote, 1), last); err != nil || got != refused {
		t.Errorf("a connection of the pod of IPv6 goes the way %d, %v, want that it is refused", got, err)
	}
	n.wantStatuses(web, ambient.StatusEnabled)
}

// TestProxyListensForAFamily has a proxy with addresses of both families. It listens for IPv4, and
// then with further sockets for IPv6 alone, too.
func TestProxyListensForAFamily(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web, proxy := n.pod(), n.silentProxy(interception.IPv4, interception.IPv6)
	listen := func(network string) {
		for _, port := range []interception.Port{n.options.Numbers.OutboundPort, n.options.Numbers.InboundPort, n.options.Numbers.TunnelPort} {
			n.harm(namespace.Run(n.places[proxy.UID].Netns.File(), func() error {
				listener, err := new(net.ListenConfig).Listen(t.Context(), network, fmt.Sprint(":", port))
				if err == nil {
					t.Cleanup(func() { _ = listener.Close() }) // the test is over
				}
				return err
			}))
		}
	}
	listen("tcp4")
	a, _ := n.run()
	n.feed <- told(proxy, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.await("the pod's error names IPv6", func() bool {
		return slices.ContainsFunc(a.Pods(), func(p agent.Pod) bool {
			return errors.Is(p.Err, nodemode.ErrFamily) && strings.Contains(p.Err.Error(), web.Addresses[1].String()) &&
				strings.Contains(p.Err.Error(), "listens for [v4] alone")
		})
	})
	listen("tcp6")
	n.await("no error", func() bool { return !slices.ContainsFunc(a.Pods(), func(p agent.Pod) bool { return p.Err != nil }) })
}

// wantWays tests how connections of a pod go, and to it, over IPv4 and over IPv6.
func (n *node) wantWays(pod ambient.Pod, proxy *nodes.Proxy, want ...way) {
	n.t.Helper()
	own := n.places[pod.UID]
	for i, want := range want {
		for _, ends := range [][2]*nodes.Place{{own, only(n.remote, i)}, {n.remote, only(own, i)}} {
			if got, err := n.connect(ends[0], ends[1], proxy); err != nil || got != want {
				n.t.Errorf("%s to %v goes the way %d, %v, want %d", ends[0].Name, ends[1].Addresses, got, err, want)
			}
		}
	}
}

// only returns a place with one of its addresses alone.
func only(place *nodes.Place, address int) *nodes.Place {
	same := *place
	same.Addresses = place.Addresses[address : address+1]
	return &same
}
