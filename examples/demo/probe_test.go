// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

// sceneOf returns the scene of a pod with these annotations that listens on port 8080.
func sceneOf(t *testing.T, annotations map[string]string) scene {
	t.Helper()
	redirect, _, err := sidecar.Istio().Parse(interception.Pod{Annotations: annotations})
	if err != nil {
		t.Fatal(err)
	}
	return scene{redirect: redirect, ports: []interception.Port{8080}, validated: true, sides: []side{
		{
			world: netip.MustParseAddr("203.0.113.10"), pod: prefixes("10.244.1.2/24"), loopback: prefixes("127.0.0.1/8"),
		},
		{
			world: netip.MustParseAddr("2001:db8::10"), pod: prefixes("fd00::2/64", "fe80::1/64"), loopback: prefixes("::1/128"),
		},
	}}
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func described(probes []probe) []string {
	var texts []string
	for _, p := range probes {
		texts = append(texts, p.String()+" "+p.destination.String())
	}
	return texts
}

func TestProbesOfPlainPod(t *testing.T) {
	t.Parallel()
	want := []string{
		"application → the world 203.0.113.10:80",
		"proxy → the world 203.0.113.10:80",
		"application → excluded port 15020 203.0.113.10:15020",
		"application → the pod's own address 10.244.1.2:8080",
		"application → loopback 127.0.0.1:8080",
		"proxy → the pod's own address 10.244.1.2:8080",
		"proxy → loopback 127.0.0.1:8080",
		"proxy → application, from 127.0.0.6 10.244.1.2:8080",
		"proxy → what istio-validation tries 127.0.0.6:15002",
		"world → application 10.244.1.2:8080",
		"world → excluded port 15020 10.244.1.2:15020",
		"world → excluded port 15090 10.244.1.2:15090",
		"world → tunnel port 15008 10.244.1.2:15008",

		"application → the world [2001:db8::10]:80",
		"proxy → the world [2001:db8::10]:80",
		"application → excluded port 15020 [2001:db8::10]:15020",
		"application → the pod's own address [fd00::2]:8080",
		"application → loopback [::1]:8080",
		"proxy → the pod's own address [fd00::2]:8080",
		"proxy → loopback [::1]:8080",
		"world → application [fd00::2]:8080",
		"world → excluded port 15020 [fd00::2]:15020",
		"world → excluded port 15090 [fd00::2]:15090",
		"world → tunnel port 15008 [fd00::2]:15008",
	}
	if diff := cmp.Diff(want, described(sceneOf(t, nil).probes())); diff != "" {
		t.Errorf("probes (-want +got):\n%s", diff)
	}
}

func TestProbesOfAnnotations(t *testing.T) {
	t.Parallel()
	s := sceneOf(t, map[string]string{
		"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.96.0.0/12,2001:db8:96::/48",
		"traffic.sidecar.istio.io/excludeOutboundIPRanges": "198.51.100.7/32",
		"traffic.sidecar.istio.io/includeOutboundPorts":    "443",
		"traffic.sidecar.istio.io/excludeOutboundPorts":    "0,3306",
		"traffic.sidecar.istio.io/includeInboundPorts":     "8080,9000",
	})
	got := described(s.probes())
	for _, want := range []string{
		"application → included 10.96.0.0/12 10.96.0.1:80",
		"application → included 2001:db8:96::/48 [2001:db8:96::1]:80",
		"application → excluded 198.51.100.7/32 198.51.100.7:80",
		"application → included port 443 203.0.113.10:443",
		"application → excluded port 1 203.0.113.10:1",
		"application → excluded port 3306 203.0.113.10:3306",
		"world → included port 9000 10.244.1.2:9000",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no probe %q in\n%q", want, got)
		}
	}
	wantListeners := []trace.Listener{
		listenerOf(proxy, interception.ProtocolTCP, 15001),
		listenerOf(proxy, interception.ProtocolTCP, 15006),
		listenerOf(proxy, interception.ProtocolTCP, 15008),
		listenerOf(proxy, interception.ProtocolTCP, 15020),
		listenerOf(proxy, interception.ProtocolTCP, 15021),
		listenerOf(proxy, interception.ProtocolTCP, 15090),
		listenerOf(application, interception.ProtocolTCP, 8080),
		listenerOf(application, interception.ProtocolTCP, 9000),
	}
	if diff := cmp.Diff(wantListeners, s.listeners(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("listeners (-want +got):\n%s", diff)
	}
}

// In TPROXY mode the proxy takes connections to any address, but only on the port to which rules
// send them.
func TestProxyOfTProxyIsTransparent(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]interception.Port{"TPROXY": {15006}, "REDIRECT": nil} {
		var got []interception.Port
		for _, l := range sceneOf(t, map[string]string{"sidecar.istio.io/interceptionMode": mode}).listeners() {
			if l.Transparent {
				got = append(got, l.Port)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v are transparent, want %v", mode, got, want)
		}
	}
}

func TestProbesOfDNSCapture(t *testing.T) {
	t.Parallel()
	s := sceneOf(t, nil)
	s.redirect.DNS.Port = 15053
	got := described(s.probes())
	for _, want := range []string{
		"application → a resolver, by UDP 203.0.113.10:53", "application → a resolver, by TCP 203.0.113.10:53",
		"proxy → a resolver, by UDP [2001:db8::10]:53",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no probe %q in\n%q", want, got)
		}
	}
	for _, protocol := range []interception.Protocol{interception.ProtocolTCP, interception.ProtocolUDP} {
		if want := listenerOf(proxy, protocol, 15053); !slices.Contains(s.listeners(), want) {
			t.Errorf("no listener %+v in %+v", want, s.listeners())
		}
	}
}

func TestSample(t *testing.T) {
	t.Parallel()
	s := sceneOf(t, nil)
	for _, test := range []struct{ prefix, want string }{
		{"10.96.0.0/12", "10.96.0.1"},
		{"198.51.100.7/32", "198.51.100.7"},
		{"203.0.113.0/24", ""}, // it holds the address that is tried anyway
		{"10.244.1.0/24", ""},  // the pod's own network
		{"0.0.0.0/1", ""},      // this network
		{"127.5.0.0/16", ""},   // loopback
		{"224.0.0.0/8", ""},    // multicast
		{"240.0.0.0/8", ""},    // reserved
		{"169.254.0.0/16", ""}, // link-local
		{"0.0.0.0/0", ""},      // everything
	} {
		addr, ok := s.sides[0].sample(netip.MustParsePrefix(test.prefix))
		if ok != (test.want != "") || ok && addr.String() != test.want {
			t.Errorf("sample of %s is %v, %v, want %q", test.prefix, addr, ok, test.want)
		}
	}
	if addr, ok := s.sides[1].sample(netip.MustParsePrefix("2001:db8:5::/48")); !ok || addr.String() != "2001:db8:5::1" {
		t.Errorf("sample of an IPv6 prefix is %v, %v", addr, ok)
	}
}

func TestEachMemberOfAListIsTried(t *testing.T) {
	t.Parallel()
	s := sceneOf(t, map[string]string{"traffic.sidecar.istio.io/excludeOutboundPorts": "1,3,5,7,9,11"})
	if n := len(s.outbound(s.sides[0])); n != 2+6 {
		t.Errorf("%d probes, want %d", n, 2+6)
	}
}
