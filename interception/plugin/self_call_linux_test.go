// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

var selfCalls = flag.Int("self-calls", 8, "how many pods call themselves right after ADD, for each network plugin and each dataplane")

// TestSelfCallsRightAfterADD has dual-stack pods connect to their own addresses as soon as ADD has
// returned. Their packets go over lo, and so are not captured as outbound traffic: the kernel has
// the local route of an address when the network plugin says that the address is there, and our
// plugin doesn't have to wait for it.
func TestSelfCallsRightAfterADD(t *testing.T) {
	t.Parallel()
	if err := mainPlugins(); err != nil {
		t.Fatal(err)
	}
	for i, first := range []string{"bridge", "ptp"} {
		for j, ours := range []string{
			fmt.Sprintf(`{"type": %q, "dataplane": "iptables"}`, filepath.Base(pluginWithIPTables(t))),
			fmt.Sprintf(`{"type": %q, "dataplane": "nftables"}`, filepath.Base(plugin(t))),
		} {
			t.Run(fmt.Sprint(first, ours), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, pod(t))
				list := n.dualStack(first, fmt.Sprintf("self%d%d", i, j), ours)
				var group sync.WaitGroup
				defer group.Wait()
				places := make(chan struct{}, 16)
				for number := range *selfCalls {
					group.Go(func() {
						places <- struct{}{}
						defer func() { <-places }()
						if err := n.callSelf(list, number); err != nil {
							t.Errorf("pod %d: %v", number, err)
						}
					})
				}
			})
		}
	}
}

// dualStack is a chain of a plugin that makes an interface with an address of each family, and
// ours.
func (n *node) dualStack(first, bridge, ours string) *libcni.NetworkConfigList {
	n.t.Helper()
	network := fmt.Sprintf(`{"type": %q, "bridge": %q, "ipam": {"type": "host-local", "dataDir": %q,
		"ranges": [[{"subnet": "10.1.0.0/16"}], [{"subnet": "fd00:1:2::/64"}]]}}`, first, bridge, filepath.Join(n.runDir, "ipam"))
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "k8s-pod-network", "plugins": [%s, %s]}`,
		network, n.configuration(`{"cniVersion": null, "name": null}`, ours)))
	if err != nil {
		n.t.Fatal(err)
	}
	return list
}

// callSelf adds a pod, has it connect to each of its addresses, and deletes it.
func (n *node) callSelf(list *libcni.NetworkConfigList, number int) (err error) {
	namespace, err := sandbox.NewNamespace(filepath.Join(n.runDir, fmt.Sprint("netns", number)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, namespace.Close()) }()
	var listener net.Listener
	if err := namespace.Do(func() (err error) { listener, err = net.Listen("tcp", ":8080"); return err }); err != nil {
		return err
	}
	defer listener.Close()
	cni := libcni.NewCNIConfigWithCacheDir([]string{filepath.Dir(plugin(n.t))}, filepath.Join(n.runDir, "cni-cache"), quiet())
	runtime := &libcni.RuntimeConf{ContainerID: fmt.Sprint("abc", number), NetNS: namespace.Path(), IfName: "eth0", Args: [][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "web-0"}, {"K8S_POD_UID", uid},
	}}
	added, err := cni.AddNetworkList(n.t.Context(), list, runtime)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cni.DelNetworkList(n.t.Context(), list, runtime)) }()
	result, err := types100.GetResult(added)
	if err != nil {
		return err
	}
	if len(result.IPs) != 2 {
		return fmt.Errorf("%d addresses", len(result.IPs))
	}
	return namespace.Do(func() error {
		var problems []error
		for _, ip := range result.IPs {
			problems = append(problems, connectTo(ip.Address.IP))
		}
		return errors.Join(problems...)
	})
}

// connectTo connects to the pod's own address.
func connectTo(address net.IP) error {
	routes, err := netlink.RouteGet(address)
	if err != nil {
		return fmt.Errorf("look up the route to %s: %w", address, err)
	}
	if len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL {
		return fmt.Errorf("the route to %s is not local: %v", address, routes)
	}
	connection, err := net.Dial("tcp", net.JoinHostPort(address.String(), "8080"))
	if err != nil {
		return err
	}
	return connection.Close()
}
