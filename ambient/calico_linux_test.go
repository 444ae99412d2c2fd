// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// calico is a model of what Calico's Felix writes with iptables, as it is by default
// (ChainInsertMode=Insert): its chains come first, accept what belongs to known connections in
// mangle and filter, and drop what pods send with addresses of others.
const calico = `*raw
:cali-PREROUTING - [0:0]
-I PREROUTING -j cali-PREROUTING
-A cali-PREROUTING -j MARK --set-xmark 0x0/0xf0000
-A cali-PREROUTING -i veth+ -j MARK --set-xmark 0x40000/0x40000
-A cali-PREROUTING -m mark --mark 0x40000/0x40000 -m rpfilter --validmark --invert -j DROP
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
*mangle
:cali-PREROUTING - [0:0]
-I PREROUTING -j cali-PREROUTING
-A cali-PREROUTING -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-PREROUTING -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
*filter
:cali-FORWARD - [0:0]
:cali-pod - [0:0]
-I FORWARD -j cali-FORWARD
-A FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000
-A cali-FORWARD -i veth+ -j cali-pod
-A cali-FORWARD -o veth+ -j cali-pod
-A cali-pod -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-pod -m conntrack --ctstate INVALID -j DROP
-A cali-pod -j MARK --set-xmark 0x10000/0x10000
COMMIT
`

// TestNodeCapturesBesideCalico captures on a node whose network is Calico's: what belongs to a
// connection gets its mark before Felix accepts it.
func TestNodeCapturesBesideCalico(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		for _, flavour := range []string{"nft", "legacy"} {
			t.Run(name+", Calico with iptables-"+flavour, func(t *testing.T) {
				t.Parallel()
				both := nodes.New(t)
				for _, program := range []string{"iptables", "ip6tables"} {
					sandboxtest.Run(t, both[0].Host.Netns.File(), calico, strings.Join([]string{program, flavour, "restore"}, "-"), "--noflush")
				}
				n := captureOn(t, both[0], backend, ambient.WayVeth, standIn, interception.IPv4, interception.IPv6)
				n.remote = applicationPod(t, both[1], "0005", interception.IPv4, interception.IPv6)
				for family := range 2 {
					n.wantWays(family)
				}
			})
		}
	}
}
