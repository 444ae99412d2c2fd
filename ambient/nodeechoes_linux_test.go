// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"context"
	"net/netip"
	"time"

	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception/trace"
)

// wantEchoes sends an echo request each way, with a proxy or without: the host or pod that has the
// address answers it, as package trace says.
func (n *capturingNode) wantEchoes(family int) {
	n.t.Helper()
	address := func(of *nodes.Place) netip.Addr { return of.Addresses[family] }
	gateway := address(n.meshed).Prev()
	for _, way := range []struct {
		from *nodes.Place
		to   netip.Addr
		by   *nodes.Place
	}{
		{n.meshed, address(n.remote), n.remote},
		{n.remote, address(n.meshed), n.meshed},
		{n.meshed, address(n.peer), n.peer},
		{n.meshed, address(n.other), n.other},
		{n.other, address(n.meshed), n.meshed},
		{n.other, address(n.remote), n.remote},
		{n.remote, address(n.other), n.other},
		{n.proxy, address(n.remote), n.remote},
		{n.proxy, address(n.meshed), n.meshed},
		{n.meshed, address(n.proxy), n.proxy},
		{n.node.Host, address(n.meshed), n.meshed},
		{n.meshed, gateway, n.node.Host},
	} {
		ctx, cancel := context.WithTimeout(n.t.Context(), 30*time.Second)
		if err := way.from.Ping(ctx, way.to); err != nil {
			n.t.Error(err)
		}
		cancel()
		there, err := trace.Follow(n.world(n.current), trace.Packet{
			From: trace.Socket{Namespace: way.from.Name}, Protocol: trace.ICMP, Dst: netip.AddrPortFrom(way.to, 0),
		}, nil)
		if err != nil {
			n.t.Fatal(err)
		}
		end := there.End()
		if end.Verdict != trace.Delivered || end.Namespace != way.by.Name {
			n.t.Errorf("the trace of an echo request from %s to %s:\n%s", way.from.Name, way.to, there.Report())
			continue
		}
		back, err := trace.Follow(n.world(n.current), end.Answer(trace.Socket{Namespace: end.Namespace}), there.Flows)
		if err != nil {
			n.t.Fatal(err)
		}
		if back.End().Socket == nil {
			n.t.Errorf("the trace of the reply of %s to %s:\n%s", way.to, way.from.Name, back.Report())
		}
	}
}
