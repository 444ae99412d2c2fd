// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// sockets is what a proxy has in the namespace of a pod.
type sockets struct {
	// listening reports whether each of its TCP ports has a listener at an unspecified address.
	listening bool
	// connected reports whether there is a connection that was accepted at one of its ports.
	connected bool
}

// proxySockets looks for the proxy's sockets by their ports (sock_diag(7)), as package netlink
// decodes no marks. A connection through the proxy has a socket that was accepted at one of them.
// The families are looked at one after the other until what was found suffices: a listener of IPv6
// usually serves both.
func proxySockets(in *interception.Netns, n ambient.Numbers, suffices func(sockets) bool) (found sockets, err error) {
	ports := []interception.Port{n.OutboundPort, n.InboundPort, n.TunnelPort}
	listeners := map[interception.Port]bool{}
	err = namespace.Run(in.File(), func() error {
		for _, family := range []uint8{unix.AF_INET6, unix.AF_INET} {
			all, err := netlink.SocketDiagTCP(family)
			if err != nil {
				return err
			}
			for _, socket := range all {
				port := interception.Port(socket.ID.SourcePort)
				switch {
				case !slices.Contains(ports, port):
				case socket.State == netlink.TCP_LISTEN:
					listeners[port] = listeners[port] || socket.ID.Source.IsUnspecified()
				case socket.State != netlink.TCP_TIME_WAIT && socket.State != netlink.TCP_CLOSE:
					found.connected = true
				}
			}
			found.listening = !slices.ContainsFunc(ports, func(port interception.Port) bool { return !listeners[port] })
			if suffices(found) {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return sockets{}, fmt.Errorf("look for the proxy's sockets in %s: %w", in, err)
	}
	return found, nil
}
