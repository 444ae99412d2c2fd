// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// Listening reports whether each of the proxy's TCP ports for connections has a listener in a pod's
// network namespace. It takes the rights to enter the namespace, which must stay open.
func Listening(in *interception.Netns, n ambient.Numbers) (bool, error) {
	missing := map[interception.Port]bool{n.OutboundPort: true, n.InboundPort: true, n.TunnelPort: true}
	err := namespace.Run(in.File(), func() error {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			if err := eachListener(family, func(port interception.Port) { delete(missing, port) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("look for the proxy's listeners in %s: %w", in, err)
	}
	return len(missing) == 0, nil
}

// eachListener calls do with the ports of a family's TCP listeners (sock_diag(7), and struct
// inet_diag_req_v2 and inet_diag_msg of linux/inet_diag.h). The kernel would search for those in
// /proc/net/tcp among the connections of the whole node.
func eachListener(family uint8, do func(interception.Port)) error {
	const requestSize, states, listening, answerSize, localPort = 56, 4, 1 << 10, 72, 4
	request := nl.NewNetlinkRequest(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	body := make([]byte, requestSize)
	body[0], body[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(body[states:], listening)
	request.AddRawData(body)
	answers, err := request.Execute(unix.NETLINK_SOCK_DIAG, 0)
	if err != nil {
		return err
	}
	for _, answer := range answers {
		if len(answer) < answerSize {
			return fmt.Errorf("the kernel describes a socket in %d bytes, fewer than %d", len(answer), answerSize)
		}
		do(interception.Port(binary.BigEndian.Uint16(answer[localPort:])))
	}
	return nil
}
