// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"cmp"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// pod returns the world of a pod with an application, and with the proxy's listeners.
func pod(plan *interception.Plan, transparent bool) trace.World {
	tcp, udp := interception.TCP().Protocol(), interception.UDP().Protocol()
	listeners := []trace.Listener{{Name: "application", Protocol: tcp, Port: 8080, Transparent: transparent}}
	for name, port := range map[string]interception.Port{"tunnel": 15008, "outbound": 15001, "inbound": 15006, "dns": 15053} {
		listeners = append(listeners, trace.Listener{Name: name, Proxy: true, Protocol: tcp, Port: port, Transparent: transparent})
	}
	listeners = append(listeners, trace.Listener{Name: "dns", Proxy: true, Protocol: udp, Port: 15053, Transparent: transparent})
	return trace.Sidecar(plan, trace.SidecarOptions{Listeners: listeners})
}

// ends returns the listener that takes a packet, or the link that it leaves by.
func ends(t *testing.T, world trace.World, line string) (string, trace.Outcome) {
	t.Helper()
	packet, err := trace.ParsePacket(line)
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := trace.Trace(world, packet)
	if err != nil {
		t.Fatal(err)
	}
	return cmp.Or(outcome.Listener.Name, outcome.Verdict.String()+" "+string(outcome.Link)), outcome
}
