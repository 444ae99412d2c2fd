// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception/trace"
)

// Inject sends one packet as it is, with any flags and from any port, and returns its source. It belongs to no connection: whoever gets it may
// answer, and nobody hears that. Where it ends, rules and listeners of the pod's tell. What comes from elsewhere goes to the pod, wherever it
// is to.
//
// What becomes of the packet is never an error, save that no packet leaves at all, for want of a way or a source: that is a syscall.Errno.
// Others are [ErrProbe], of a packet with a flow, and [ErrNeedsSecondUID].
func (p *Pod) Inject(packet trace.Packet) (src netip.AddrPort, err error) {
	if packet.Flow != nil {
		return src, fmt.Errorf("inject packet: %w: %s has a flow; send what leaves one", ErrProbe, packet)
	}
	if src, err = p.network.inject(packet); err != nil {
		err = fmt.Errorf("inject packet: %s: %w", packet, err)
	}
	return src, err
}
