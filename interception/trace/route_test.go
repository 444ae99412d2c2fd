// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception/trace"
)

// The sources are those that Linux 6.18 chose in a namespace with these addresses.
func TestSourceAddress(t *testing.T) {
	t.Parallel()
	world := trace.Sidecar(nil, trace.SidecarOptions{
		Addresses: addresses("10.244.0.2/24", "10.9.0.5/24", "10.244.0.3/24", "fd00:10:244::3/64", "fd00:10:244::2/64", "2001:db8:1::2/64", "fe80::2/64"),
		Loopback:  addresses("10.77.0.1/24", "::6/128"),
	})
	for dst, want := range map[string]string{
		"192.0.2.1:80":            "10.244.0.2", // by the gateway
		"10.244.0.9:80":           "10.244.0.2",
		"10.9.0.9:80":             "10.9.0.5", // of the same subnet
		"10.244.0.2:80":           "10.244.0.2",
		"10.244.0.3:80":           "10.244.0.2", // a secondary address is not a source
		"10.9.0.5:80":             "10.9.0.5",
		"127.0.0.1:80":            "127.0.0.1",
		"127.0.0.6:80":            "127.0.0.1",
		"10.77.0.9:80":            "10.77.0.1", // all of a prefix of lo is local
		"[fd00:10:244::2]:80":     "fd00:10:244::2",
		"[fd00:10:244::3]:80":     "fd00:10:244::3",
		"[fd00:10:244::9]:80":     "fd00:10:244::3",
		"[2001:db8:2::1]:80":      "2001:db8:1::2", // the longest common prefix
		"[fe80::9]:80":            "fe80::2",       // the scope
		"[::1]:80":                "::1",
		"[::6]:80":                "::6",
		"[fe80::2]:80":            "fe80::2",
		"[2001:db8:1:0:8::9]:443": "2001:db8:1::2",
	} {
		if got := traced(t, world, connect(application, dst)).Packet.Src.Addr().String(); got != want {
			t.Errorf("to %s: source %s, want %s", dst, got, want)
		}
	}
}

// A longer prefix wins over an earlier one, and an address counts only for its own prefix.
func TestSourceAddressOfNestedPrefixes(t *testing.T) {
	t.Parallel()
	world := trace.Sidecar(nil, trace.SidecarOptions{
		Addresses: addresses("10.244.0.2/16", "10.244.1.2/24", "10.244.1.3/24", "2001:db8:1::2/64", "2001:db8:2::2/32"),
	})
	for dst, want := range map[string]string{
		"10.244.0.9:80":       "10.244.0.2",
		"10.244.1.9:80":       "10.244.1.2",
		"192.0.2.1:80":        "10.244.0.2",
		"[2001:db8:2::9]:80":  "2001:db8:1::2",
		"[2001:db8:2::2]:80":  "2001:db8:2::2",
		"[2001:db8:1::99]:80": "2001:db8:1::2",
	} {
		if got := traced(t, world, connect(application, dst)).Packet.Src.Addr().String(); got != want {
			t.Errorf("to %s: source %s, want %s", dst, got, want)
		}
	}
}

func TestRoute(t *testing.T) {
	t.Parallel()
	pod := trace.Sidecar(nil, trace.SidecarOptions{Loopback: addresses("10.77.0.1/24", "::6/128")})
	v4only := trace.Sidecar(nil, trace.SidecarOptions{Addresses: addresses("10.244.0.2/24")})
	withoutIPv6 := trace.World{Namespaces: []trace.Namespace{{Links: []trace.Link{
		{Name: "lo", Addresses: addresses("127.0.0.1/8")},
		{Name: "eth0", Addresses: addresses("10.244.0.2/32", "fd00::2/64")},
	}}}}
	several := trace.World{Namespaces: []trace.Namespace{{Name: "several", Links: []trace.Link{
		trace.Loopback(),
		{Name: "net1", Addresses: addresses("fe80::1/64")},
		{Name: "net2", Addresses: addresses("10.1.0.2/16", "fd01::2/64")},
		{Name: "net3", Addresses: addresses("10.1.1.2/24", "10.2.0.2/16")},
	}}}}
	for _, c := range []struct {
		world  trace.World
		packet trace.Packet
		want   string
	}{
		{pod, connect(application, "192.0.2.1:80"), "sent by eth0 to 192.0.2.1:80"},
		{pod, connect(application, "10.77.0.9:80"), "refused: nothing listens at 10.77.0.9:80"},
		{pod, bound(connect(proxy, "10.244.0.2:80"), "127.0.0.6"), "refused: nothing listens at 10.244.0.2:80"},
		{pod, bound(connect(proxy, "[fd00:10:244::2]:80"), "::6"), "refused: nothing listens at [fd00:10:244::2]:80"},
		{pod, bound(connect(proxy, "192.0.2.1:80"), "127.0.0.6"), "unroutable: such an address cannot be seen on this link"},
		{pod, bound(connect(proxy, "[2001:db8::1]:80"), "::1"), "sent by eth0 to [2001:db8::1]:80"},
		{pod, arriving("10.244.0.9:40000", "10.244.0.2:80"), "refused: nothing listens at 10.244.0.2:80"},
		{pod, arriving("10.244.0.9:40000", "10.77.0.9:80"), "refused: nothing listens at 10.77.0.9:80"},
		{pod, arriving("10.244.0.9:40000", "10.50.0.1:80"), "unroutable: it is not for this namespace, which does not forward"},
		{pod, arriving("10.244.0.9:40000", "127.0.0.1:80"), "unroutable: such an address cannot be seen on this link"},
		{pod, arriving("127.0.0.1:40000", "10.244.0.2:80"), "unroutable: such an address cannot be seen on this link"},
		{pod, arriving("127.0.0.9:40000", "10.244.0.2:80"), "unroutable: such an address cannot be seen on this link"},
		{pod, arriving("10.244.0.2:40000", "10.244.0.2:80"), "unroutable: such an address cannot be seen on this link"},
		{pod, arriving("[fd00:10:244::2]:40000", "[fd00:10:244::2]:80"), "refused: nothing listens at [fd00:10:244::2]:80"},
		{pod, arriving("[fd00:10:244::9]:40000", "[::6]:80"), "refused: nothing listens at [::6]:80"},
		{pod, arriving("[fd00:10:244::9]:40000", "[::1]:80"), "unroutable: such an address cannot be seen on this link"},
		{pod, arriving("[::1]:40000", "[fd00:10:244::2]:80"), "unroutable: such an address cannot be seen on this link"},
		{pod, arriving("[fd00:10:244::9]:40000", "[fd00:50::1]:80"), "unroutable: it is not for this namespace, which does not forward"},
		{v4only, connect(application, "[2001:db8::1]:80"), "unroutable: no link leads to the destination"},
		{v4only, connect(application, "[::1]:80"), "refused: nothing listens at [::1]:80"},
		{v4only, connect(application, "[::6]:80"), "unroutable: no link leads to the destination"},
		{withoutIPv6, connect(application, "[::1]:80"), "unroutable: no link leads to the destination"},
		{withoutIPv6, connect(application, "10.244.0.2:80"), "refused: nothing listens at 10.244.0.2:80"},
		{several, connect(application, "10.1.0.9:80"), "sent by net2 to 10.1.0.9:80"},
		{several, connect(application, "10.1.1.9:80"), "sent by net3 to 10.1.1.9:80"},
		{several, connect(application, "10.2.0.9:80"), "sent by net3 to 10.2.0.9:80"},
		{several, connect(application, "192.0.2.1:80"), "sent by net2 to 192.0.2.1:80"},
		{several, connect(application, "[2001:db8::1]:80"), "sent by net2 to [2001:db8::1]:80"},
		{several, connect(application, "[fe80::9]:80"), "sent by net1 to [fe80::9]:80"},
	} {
		if got := traced(t, c.world, c.packet).String(); got != c.want+"; no rule decided" {
			t.Errorf("%s\n got: %s\nwant: %s", c.packet, got, c.want)
		}
	}
}
