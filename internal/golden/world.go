// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// ApplicationPort is where the application of every case listens, TCP and UDP.
const ApplicationPort interception.Port = 8080

// World is the pod of every case, with the given plan: the default addresses of a sidecar's world, the application, and the proxy, whose
// inbound listener is transparent.
func World(plan *interception.Plan) trace.World {
	return trace.Sidecar(plan, trace.SidecarOptions{Listeners: []trace.Listener{
		{Name: "application", Protocol: interception.ProtocolTCP, Port: ApplicationPort},
		{Name: "application", Protocol: interception.ProtocolUDP, Port: ApplicationPort},
		{Name: "proxy-outbound", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15001},
		{Name: "proxy-inbound", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15006, Transparent: true},
	}})
}
