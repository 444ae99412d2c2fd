// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

func TestSidecar(t *testing.T) {
	t.Parallel()
	application := trace.Listener{Name: "application", Protocol: interception.ProtocolTCP, Port: 8080}
	envoy := trace.Listener{Name: "envoy", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15006}
	plan := build(t, func(b *interception.Builder) {
		capture(b)
		b.NAT("datagrams").Do("datagrams", interception.Match{L4: interception.UDP()}, interception.RedirectTo{Port: 15006}, "why")
	})
	got := trace.Sidecar(plan, trace.SidecarOptions{
		Addresses: addresses("10.0.0.2/8"),
		Loopback:  addresses("::6/128"),
		Listeners: []trace.Listener{application, envoy},
	})
	want := trace.World{Namespaces: []trace.Namespace{{
		Name: "pod",
		Links: []trace.Link{
			{Name: "lo", Addresses: addresses("127.0.0.1/8", "::1/128", "::6/128")},
			{Name: "eth0", Addresses: addresses("10.0.0.2/8")},
		},
		Listeners: []trace.Listener{
			application, envoy,
			{Name: "proxy-15001", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15001},
			{Name: "proxy-15006", Proxy: true, Protocol: interception.ProtocolUDP, Port: 15006},
		},
	}}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(application.Address, addresses("::/0")[0]), cmpopts.IgnoreFields(trace.Namespace{}, "Plans")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if plans := got.Namespaces[0].Plans; len(plans) != 1 || plans[0] != plan {
		t.Errorf("plans are %v", plans)
	}
}

func TestSidecarDefaults(t *testing.T) {
	t.Parallel()
	got := trace.Sidecar(nil, trace.SidecarOptions{}).Namespaces[0]
	if diff := cmp.Diff(addresses("10.244.0.2/24", "fd00:10:244::2/64"), got.Links[1].Addresses, cmpopts.EquateComparable(addresses("::/0")[0])); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(got.Plans) != 0 || len(got.Listeners) != 0 {
		t.Errorf("a pod outside the mesh has plans %v and listeners %v", got.Plans, got.Listeners)
	}
}
