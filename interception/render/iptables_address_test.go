// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
)

// TestIPTablesAddresses has addresses that inet_ntop(3) and package netip might write differently.
func TestIPTablesAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"::":             "::/128",
		"::1":            "::1/128",
		"::ffff":         "::ffff/128",
		"::7f00:35":      "::127.0.0.53/128",
		"::1:0":          "::0.1.0.0/128",
		"::1:0:0":        "::1:0:0/128",
		"::ffff:0:1":     "::ffff:0.0.0.1/128",
		"::1:ffff:0:1":   "::1:ffff:0:1/128",
		"64:ff9b::a00:1": "64:ff9b::a00:1/128",
		"2001:db8::":     "2001:db8::/128",
		"1:0:0:2::":      "1:0:0:2::/128",
		"1::2:0:0:0":     "1::2:0:0:0/128",
		"10.0.0.1":       "10.0.0.1/32",
	} {
		addr := netip.MustParseAddr(address)
		prefix := netip.PrefixFrom(addr, addr.BitLen())
		lines := ruleLines(t, interception.FamilyOf(addr), interception.Match{Src: interception.Is(interception.Prefixes(prefix))}, interception.Drop{})
		if diff := cmp.Diff([]string{"CHAIN -s " + want + " -j DROP"}, lines); diff != "" {
			t.Errorf("%s (-want +got):\n%s", address, diff)
		}
	}
}

func TestIPTablesTranslatedAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"::7f00:35": "[::127.0.0.53]:80", "2001:db8::1": "[2001:db8::1]:80", "10.0.0.1": "10.0.0.1:80",
	} {
		addr := netip.MustParseAddr(address)
		plan := build(t, func(b *interception.Builder) {
			match := interception.Match{Family: interception.FamilyOf(addr), L4: interception.TCP()}
			b.NAT("chain").Do("the.rule", match, interception.DNATTo{Addr: addr, Port: 80}, "why")
		})
		if text := restore(t, plan, interception.FamilyOf(addr)); !strings.Contains(text, "-j DNAT --to-destination "+want+"\n") {
			t.Errorf("%s is not written as %s:\n%s", address, want, text)
		}
	}
}
