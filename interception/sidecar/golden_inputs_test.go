// SPDX-License-Identifier: Apache-2.0

package sidecar_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/golden"
)

// input is a test input of a rule generator: words "name=value" with names of inputKeys.
type input struct{ name, words string }

// inputKeys maps short names to what a case can set.
func inputKeys() map[string]string {
	const traffic = "traffic.sidecar.istio.io/"
	return map[string]string{
		"mode": "sidecar.istio.io/interceptionMode", "in": traffic + "includeInboundPorts", "in-ex": traffic + "excludeInboundPorts",
		"to": traffic + "includeOutboundIPRanges", "to-ex": traffic + "excludeOutboundIPRanges",
		"ports": traffic + "includeOutboundPorts", "ports-ex": traffic + "excludeOutboundPorts",
		"nic-ex": traffic + "excludeInterfaces", "vif": "istio.io/reroute-virtual-interfaces",
		"dns": "ISTIO_META_DNS_CAPTURE", "drop": "INVALID_DROP", "dual": "ISTIO_DUAL_STACK", "lo": "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR",
		"groups": "ISTIO_OUTBOUND_OWNER_GROUPS", "groups-ex": "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE",
	}
}

// istioInputs returns the inputs of the tests of Istio's plugin and of its generators for iptables
// and nftables (cni/pkg/plugin, tools/istio-iptables, tools/istio-nftables), with numbers in place
// of group names. A generator captures nothing by default. DNS capture without resolvers means none
// in Istio and all of them here, so both cases are listed.
func istioInputs() []input {
	const nothing, ids = "in= to= ports-ex= ", "uids=3,4 gids=1,2 "
	const six = nothing + "in=4000,5000 in-ex=6000,7000 vif=eth0,eth1 to=2001:db8::/32 to-ex=2001:db8::/32 "
	return []input{
		{"basic", ""},
		{"include-exclude-ip", "to=127.0.0.0/8 to-ex=10.0.0.0/8"},
		{"include-exclude-ports", "in=1111,2222 in-ex=3333,4444 ports-ex=5555,6666"},
		{"tproxy of the plugin", "mode=TPROXY"},
		{"dns of the plugin", "dns=true"},
		{"invalid-drop", "drop=true"},
		{"custom-uid", "user=1000670000 group=1000670001"},
		{"custom-uid-tproxy", "mode=TPROXY user=1000670000 group=1000670001"},
		{"custom-uid-zero", "user=0"},
		{"inbound star", "in=*"},
		{"inbound empty", "in="},
		{"exclude empty", "in-ex="},
		{"exclude a port", "in-ex=3306"},
		{"exclude ports of the agent too", "in-ex=3306,15090,15021,3306,15020"},
		{"dual stack", "dual=true"},

		{"empty", nothing},
		{"basic-exclude-nic", nothing + "nic-ex=not-istio-nic"},
		{"drop-invalid", nothing + "drop=true"},
		{"host-ipv4-loopback-cidr", nothing + "lo=127.0.0.1/8"},
		{"inbound-ports-include", nothing + "in=32000,31000"},
		{"inbound-ports-wildcard", nothing + "in=*"},
		{"inbound-ports-tproxy", nothing + "mode=TPROXY in=32000,31000"},
		{"inbound-ports-wildcard-tproxy", nothing + "mode=TPROXY in=*"},
		{"inbound-ports-empty-tproxy", nothing + "mode=TPROXY"},
		{"outbound-ports-include", nothing + "ports=32000,31000"},
		{"ipnets", nothing + "to=10.0.0.0/8"},
		{"kube-virt-interfaces", nothing + "vif=eth1,eth2 to=*"},
		{"ipnets-with-kube-virt-interfaces", nothing + "vif=eth1,eth2 to=10.0.0.0/8"},
		{"ip-range", nothing + ids + "to-ex=1.1.0.0/16 to=9.9.0.0/16 dns=true servers=127.0.0.53/32"},
		{"loopback-outbound-iprange", nothing + ids + "to=127.1.2.3/32 dns=true servers=127.0.0.53/32"},
		{"dns-uid-gid", nothing + ids + "dns=true servers=127.0.0.53/32,::127.0.0.53/128"},
		{"ipv6-dns-uid-gid", nothing + ids},
		{"ipv6-dns-uid-gid, all resolvers", nothing + ids + "dns=true"},
		{"outbound-owner-groups", nothing + "groups=101,202"},
		{"outbound-owner-groups-exclude", nothing + "groups-ex=888,999"},
		{"ipv6-dns-outbound-owner-groups, all resolvers", nothing + "groups=101,202 dns=true"},
		{"ipv6-dns-outbound-owner-groups-exclude, all resolvers", nothing + "groups-ex=888,999 dns=true"},
		{"tproxy", "ports-ex= mode=TPROXY in=* in-ex= to-ex=1.1.0.0/16 to=9.9.0.0/16 dns=true servers=127.0.0.53/32 nic-ex=not-istio-nic"},
		{"ipv6-inbound-ports", nothing + "in=4000,5000"},
		{"ipv6-virt-interfaces", nothing + "in=4000,5000 vif=eth0,eth1"},
		{"ipv6-ipnets", six},
		{"ipv6-uid-gid", six + ids},
	}
}

// parse returns the input's case.
func (in input) parse(t *testing.T) golden.Case {
	t.Helper()
	proxy := interception.Container{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}, Env: map[string]string{}}
	c := golden.Case{Pod: interception.Pod{Annotations: map[string]string{}}}
	for word := range strings.FieldsSeq(in.words) {
		name, value, _ := strings.Cut(word, "=")
		key := inputKeys()[name]
		switch {
		case name == "user":
			proxy.RunAsUser = number[int64](t, value)
		case name == "group":
			proxy.RunAsGroup = number[int64](t, value)
		case name == "uids":
			c.Overrides.UIDs = numbers[interception.UID](t, value)
		case name == "gids":
			c.Overrides.GIDs = numbers[interception.GID](t, value)
		case name == "servers":
			for prefix := range strings.SplitSeq(value, ",") {
				c.Overrides.DNSServers = append(c.Overrides.DNSServers, netip.MustParsePrefix(prefix))
			}
		case key == "":
			t.Fatalf("%q is not a parameter", word)
		case strings.ToUpper(key) == key:
			proxy.Env[key] = value
		default:
			c.Pod.Annotations[key] = value
		}
	}
	c.Pod.Containers = []interception.Container{proxy}
	return c
}

func number[N int64 | interception.UID | interception.GID](t *testing.T, text string) *N {
	t.Helper()
	var n N
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return &n
}

func numbers[N interception.UID | interception.GID](t *testing.T, list string) []N {
	t.Helper()
	var all []N
	for text := range strings.SplitSeq(list, ",") {
		all = append(all, *number[N](t, text))
	}
	return all
}

// TestGoldensHaveIstiosInputs finds a golden case for each input, in both families.
func TestGoldensHaveIstiosInputs(t *testing.T) {
	t.Parallel()
	known := map[string]string{}
	for _, c := range goldens(t) {
		if c.Facts.IPv6 {
			known[redirectText(t, c)] = c.Name
		}
	}
	for _, in := range istioInputs() {
		if text := redirectText(t, in.parse(t)); known[text] == "" {
			t.Errorf("no golden case is about the input %s (%s):\n%s", in.name, in.words, text)
		}
	}
}

// redirectText returns what a case asks for, without provenance.
func redirectText(t *testing.T, c golden.Case) string {
	t.Helper()
	redirect, _, err := c.Redirect()
	if err != nil {
		t.Fatal(err)
	}
	redirect.Sources = nil
	return fmt.Sprintf("%+v", redirect)
}

// TestGroupNamesAreRefused has group names: a node's names do not apply in a pod.
func TestGroupNamesAreRefused(t *testing.T) {
	t.Parallel()
	for words, name := range map[string]string{"groups=java,202": "java", "groups-ex=888,ftp": "ftp"} {
		_, _, err := input{words: words}.parse(t).Redirect()
		if err == nil || !strings.Contains(err.Error(), `"`+name+`"`) || !strings.Contains(err.Error(), "number") {
			t.Errorf("%s: error %v, want one that quotes %s and asks for a number", words, err, name)
		}
	}
}
