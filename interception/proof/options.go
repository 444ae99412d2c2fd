// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// Options say where rules are asked about. The zero value is fit for a pod with a sidecar.
type Options struct {
	// World is the world in which the rules stand, without them: what is asked about is put before the plans of its first namespace,
	// as if it had been applied last. The zero World is what [World] makes.
	World trace.World
	// Addresses are those of eth0 in the world that takes the place of a zero World, as in [trace.SidecarOptions]: with the addresses of
	// a real pod, the packets that an answer shows can be traced through that pod. A World that is given has addresses of its own.
	Addresses []netip.Prefix
	// MaxNodes bounds the memory: the number of nodes of a decision diagram, of about 40 bytes each; 0 stands for 4,000,000. An answer
	// that would need more is the error [ErrTooLarge].
	MaxNodes int
}

const defaultMaxNodes = 4_000_000

// world is the world in which the plans stand, without them.
func (o Options) world(plans ...*interception.Plan) trace.World {
	if len(o.World.Namespaces) > 0 {
		return o.World
	}
	return worldFor(plans, o.Addresses)
}

func (o Options) maxNodes() int {
	if o.MaxNodes <= 0 {
		return defaultMaxNodes
	}
	return o.MaxNodes
}
