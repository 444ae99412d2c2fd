// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"slices"
	"testing"
)

func TestNewSockets(t *testing.T) {
	t.Parallel()
	at := func(pod string, port uint16) acceptedSocket {
		return acceptedSocket{pod, 15001, netip.AddrPortFrom(ordersAddress, port)}
	}
	old, own, other := at(orders, 1), at(orders, 2), at(stock, 2)
	got := newSockets([]acceptedSocket{old}, []acceptedSocket{other, old, own}, orders)
	if want := []acceptedSocket{own, other}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	other.port = 15008
	for text, open := range map[string][]acceptedSocket{"15001 → 15008": {old, other, own}, "15008": {old, other}, "": {old}} {
		if ports := openPorts([]acceptedSocket{own, other}, open); ports != text {
			t.Errorf("of %v, %q is open, want %q", open, ports, text)
		}
	}
}
