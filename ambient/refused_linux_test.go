// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestNodeIsLeftAsItWas has hosts and proxies on which capture on the node cannot be: the error
// names what is in the way, and both namespaces stay as they were.
func TestNodeIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	commands := func(lines ...string) func(*testing.T, *sandboxtest.Pod) {
		return func(t *testing.T, in *sandboxtest.Pod) {
			t.Helper()
			for _, line := range lines {
				in.Run(t, "", append([]string{"ip"}, strings.Fields(line)...)...)
			}
		}
	}
	nothing := commands()
	for name, test := range map[string]struct {
		node, pod func(*testing.T, *sandboxtest.Pod)
		change    func(*ambient.ProxySwitch)
		way       ambient.Way
		want      []string // parts of the error
	}{
		"an interface of the wire's name": {
			commands("link add istioout type veth peer name other"), nothing, nil, ambient.WayVeth, []string{"istioout"},
		},
		"an interface of the wire's name in the proxy's pod": {
			nothing, commands("link add pistioin type veth peer name other"), nil, ambient.WayVeth, []string{"pistioin"},
		},
		"a port in use": {
			commands("link add other type vxlan external dstport 6081", "link set other up"), nothing, nil, ambient.WayVXLAN, []string{"wire.inbound", "already in use"},
		},
		"a priority in use": {
			commands("rule add fwmark 0x1 lookup 7 priority 102"), nothing, nil, ambient.WayVeth, []string{"102"},
		},
		"a table that another program uses": {
			commands("link set lo up", "route add default dev lo table 101"), nothing, nil, ambient.WayVeth, []string{"101"},
		},
		"a table of the proxy that another program uses": {
			nothing, commands("link set lo up", "route add default dev lo table 101"), nil, ambient.WayVXLAN, []string{"101"},
		},
		"names of more than 15 bytes": {
			nothing, nothing, func(s *ambient.ProxySwitch) {
				s.Numbers.OutboundWire.Node, s.Successor.Proxy.Generation = "abcdefghijklmn", 12
			}, ambient.WayVeth, []string{"abcdefghijklmn12", "15"},
		},
		"a closed namespace of the proxy": {
			nothing, nothing, func(s *ambient.ProxySwitch) {
				s.Successor.Namespace = interception.StandInNetns("gone", interception.NetnsID{Inode: 1})
				_ = s.Successor.Namespace.Close()
			}, ambient.WayVeth, []string{"gone", "closed"},
		},
		"the node's namespace as the proxy's": {
			nothing, nothing, func(s *ambient.ProxySwitch) { s.Successor.Namespace = s.Node }, ambient.WayVeth, []string{"needs another one"},
		},
		"no address of the proxy": {
			nothing, nothing, func(s *ambient.ProxySwitch) {
				s.Successor.Facts, s.Successor.Proxy.Addresses = interception.Facts{}, s.Successor.Proxy.Addresses[1:]
			},
			ambient.WayVeth,
			[]string{"no address", "fd00:10:244:1::e"},
		},
	} {
		for backendName, backend := range hosts(t) {
			t.Run(name+" "+backendName, func(t *testing.T) {
				t.Parallel()
				node, pod := sandboxtest.NewPod(t), sandboxtest.NewPod(t)
				test.node(t, node)
				test.pod(t, pod)
				both := func() [2]string { return [2]string{contents(t, node), contents(t, pod)} }
				before := both()
				s := ambient.ProxySwitch{
					Owner: "test-ambient", Numbers: ambient.IstioNodeNumbers(), Node: node.Netns, Facts: bothFamilies(), Fresh: true,
					Successor: ambient.ProxyPod{Proxy: ways()[test.way], Namespace: pod.Netns, Facts: bothFamilies()},
				}
				if test.change != nil {
					test.change(&s)
				}
				r, err := s.Rollout()
				if err == nil {
					err = r.Apply(t.Context(), backend)
				}
				if err == nil {
					t.Fatal("no error")
				}
				var rollout *ambient.RolloutError
				if errors.As(err, &rollout) && len(rollout.Back) > 0 {
					t.Errorf("the way back failed: %v", err)
				}
				for _, part := range test.want {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%v does not name %q", err, part)
					}
				}
				if diff := cmp.Diff(before, both()); diff != "" {
					t.Errorf("(-before +after):\n%s", diff)
				}
			})
		}
	}
}
