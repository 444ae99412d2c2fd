// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// Network is the cluster's own network on a node: the plugins that make a pod's interface.
type Network int

const (
	// NoNetwork installs nothing.
	NoNetwork Network = iota
	// BridgeNetwork connects a node's pods by a bridge.
	BridgeNetwork
	// PointToPointNetwork connects each pod to the node by its own link.
	PointToPointNetwork
	// RoutedNetwork is also point to point, with a /32 for each pod and the gateway 169.254.1.1, as
	// in Calico.
	RoutedNetwork
	// IPv6Network is a bridge on a node that has IPv6 only: neither it nor its pods have other
	// addresses.
	IPv6Network
)

// FileName is the file with the network's configuration in /etc/cni/net.d.
const FileName = "10-e2e.conflist"

// Install writes the network's configuration into a directory of CNI configurations, for the node
// with this number.
func (n Network) Install(directory string, number int) error {
	text := n.Configuration(number)
	if text == "" {
		return nil
	}
	unfinished := filepath.Join(directory, ".unfinished")
	if err := os.WriteFile(unfinished, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(unfinished, filepath.Join(directory, FileName))
}

// Configuration returns the configuration list; empty for [NoNetwork].
func (n Network) Configuration(number int) string {
	pods4, pods6 := podPrefixes(number)
	ranges, routes := fmt.Sprintf(`[{"subnet": %q}], [{"subnet": %q}]`, pods4, pods6), `{"dst": "0.0.0.0/0"}, {"dst": "::/0"}`
	if n == IPv6Network {
		ranges, routes = fmt.Sprintf(`[{"subnet": %q}]`, pods6), `{"dst": "::/0"}`
	}
	ipam := fmt.Sprintf(`"ipam": {
        "type": "host-local",
        "ranges": [%s],
        "routes": [%s]
      }`, ranges, routes)
	var first string
	switch n {
	case BridgeNetwork, IPv6Network:
		first = `{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, ` + ipam + `}`
	case PointToPointNetwork:
		first = `{"type": "ptp", ` + ipam + `}`
	case RoutedNetwork:
		first = `{"type": "routed", ` + ipam + `}`
	case NoNetwork:
		return ""
	}
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "e2e",
  "plugins": [
    %s,
    {"type": "portmap", "capabilities": {"portMappings": true}, "backend": "iptables"}
  ]
}
`, first)
}
