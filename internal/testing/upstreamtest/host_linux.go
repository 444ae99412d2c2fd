// SPDX-License-Identifier: Apache-2.0

package upstreamtest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/ipset"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// family is what the rules of one family name.
type family struct {
	interception.Family

	ip, set, probe string
	sets           string // the type of nft's sets
}

func hostFamilies(ipv6 bool) []family {
	all := []family{{interception.IPv4, "ip", "istio-inpod-probes-v4", "169.254.7.127", "ipv4_addr"}}
	if ipv6 {
		all = append(all, family{interception.IPv6, "ip6", "istio-inpod-probes-v6", "fd16:9254:7127:1337:ffff:ffff:ffff:ffff", "ipv6_addr"})
	}
	return all
}

// InstallHost puts the agent's rules and sets into the node's own namespace. The kubelet is root's,
// as nft's rules name its user.
func InstallHost(t testing.TB, in *os.File, ipv6 bool, by Program, members map[netip.Addr]string) {
	t.Helper()
	if by == NFT {
		sandboxtest.Run(t, in, nativeHost(ipv6, members), "nft", "-f", "-")
		return
	}
	socket, err := ipset.Dial(kernel.Of(in))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, f := range hostFamilies(ipv6) {
		if err := socket.Create(f.set, ipset.OfAddresses, f.Family); err != nil {
			t.Fatal(err)
		}
		for address, uid := range members {
			if interception.FamilyOf(address) != f.Family {
				continue
			}
			if err := socket.Add(f.set, ipset.Member{Prefix: netip.PrefixFrom(address, address.BitLen()), Comment: uid}); err != nil {
				t.Fatal(err)
			}
		}
		text := "*nat\n-N ISTIO_POSTRT\n-I POSTROUTING 1 -j ISTIO_POSTRT\n" +
			"-A ISTIO_POSTRT -m owner --socket-exists -p tcp -m set --match-set " + f.set + " dst -j SNAT --to-source " + f.probe + "\nCOMMIT\n"
		sandboxtest.Run(t, in, text, strings.Replace(string(by), "ip", f.ip, 1)+"-restore", "--noflush")
	}
}

// nativeHost returns the same as nft reads it.
func nativeHost(ipv6 bool, members map[netip.Addr]string) string {
	const table = "inet istio-ambient-nat"
	sets, rules := "", ""
	for _, f := range hostFamilies(ipv6) {
		sets += fmt.Sprintf("add set %s %s { type %s; comment \"UUID of the pods that are part of ambient mesh\"; }\n", table, f.set, f.sets)
		for address, uid := range members {
			if interception.FamilyOf(address) == f.Family {
				sets += fmt.Sprintf("add element %s %s { %s comment %q }\n", table, f.set, address, uid)
			}
		}
		rules += fmt.Sprintf("add rule %s postrouting meta l4proto tcp skuid 0 %s daddr @%s counter snat to %s\n", table, f.ip, f.set, f.probe)
	}
	return "add table " + table + "\n" + sets + "add chain " + table + " postrouting { type nat hook postrouting priority 100; }\n" + rules
}

// HostSets returns the names of the sets that the agent has made by iptables.
func HostSets(t testing.TB, in *os.File) (names []string) {
	t.Helper()
	socket, err := ipset.Dial(kernel.Of(in))
	if err != nil {
		t.Fatal(err)
	}
	all, err := socket.Names()
	if err := errors.Join(err, socket.Close()); err != nil { // the caller may ask often
		t.Fatal(err)
	}
	for _, name := range all {
		if strings.HasPrefix(name, "istio-inpod-probes-") {
			names = append(names, name)
		}
	}
	return names
}
