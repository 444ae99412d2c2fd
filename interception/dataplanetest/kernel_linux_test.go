// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestKernelDump puts one object of each kind into a namespace, one after the other, and Dump has a
// line for each.
func TestKernelDump(t *testing.T) {
	t.Parallel()
	ground := Kernel{}
	ns := ground.Namespace(t)
	// The usual lock file is for root alone.
	legacy := "env XTABLES_LOCKFILE=" + filepath.Join(t.TempDir(), "lock") + " "
	const chain, table = "*mangle\n:MINE -\nCOMMIT\n", "table ip mine {\n}\n"
	for _, thing := range []struct{ command, input, want string }{
		{"ip link add mine0 type veth peer name mine1", "", "link mine0@mine1: up false"},
		{"ip link set mine0 up", "", "link mine0@mine1: up true"},
		{"ip address add 10.77.0.1/32 dev lo", "", "address lo inet 10.77.0.1/32"},
		{"ip address add fd77::1/128 dev lo nodad", "", "address lo inet6 fd77::1/128"},
		{"ip -4 rule add fwmark 7 lookup 77 priority 770", "", "rule -4 770: from all fwmark 0x7 lookup 77"},
		{"ip -6 rule add fwmark 7 lookup 77 priority 770", "", "rule -6 770: from all fwmark 0x7 lookup 77"},
		{"ip -4 route add local default dev lo table 77", "", "route -4 2 default dev lo table 77"},
		{"ip -4 route add 192.0.2.0/24 via inet6 2001:db8::1 dev mine0 onlink", "", "route -4 192.0.2.0/24 via inet6 2001:db8::1 dev mine0"},
		{"ip -6 route add 2001:db8:: dev lo table 77", "", "route -6 2001:db8:: dev lo table 77"},
		{"ip -6 route add default dev lo table 77", "", "route -6 default dev lo table 77"},
		{"iptables-nft-restore --noflush", chain, "iptables-nft mangle MINE is a chain"},
		{"ip6tables-nft-restore --noflush", chain, "ip6tables-nft mangle MINE is a chain"},
		{legacy + "iptables-legacy-restore --noflush", chain, "iptables-legacy mangle MINE is a chain"},
		{legacy + "ip6tables-legacy-restore --noflush", chain, "ip6tables-legacy mangle MINE is a chain"},
		{"nft -f -", table, "table ip mine {"},
	} {
		before := ground.Dump(t, ns)
		inside(ns)(t, thing.input, strings.Fields(thing.command)...)
		found := 0
		more := missing(ground.Dump(t, ns), before)
		for _, line := range more {
			if strings.HasPrefix(line, thing.want) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s: want one more line that begins with %q, got %q", thing.command, thing.want, more)
		}
	}
}
