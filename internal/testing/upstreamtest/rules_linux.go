// SPDX-License-Identifier: Apache-2.0

package upstreamtest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// Program is what the agent writes its rules by.
type Program = upstream.Program

// The programs.
const (
	IPTablesLegacy = upstream.ProgramIPTablesLegacy
	IPTablesNFT    = upstream.ProgramIPTablesNFT
	NFT            = upstream.ProgramNFT
)

// Programs returns all of them.
func Programs() []Program { return []Program{IPTablesLegacy, IPTablesNFT, NFT} }

// Install puts the rules into a namespace, with their routes and policy rules. NFT takes
// [upstream.GenerationNative], and the others take the other generations.
func Install(t testing.TB, in *os.File, u upstream.PodRules, by Program) {
	t.Helper()
	families := []string{"-4"}
	if u.IPv6 {
		families = append(families, "-6")
	}
	for _, family := range families {
		everything := map[string]string{"-4": "0.0.0.0/0", "-6": "::/0"}[family]
		sandboxtest.Run(t, in, "", "ip", family, "route", "add", "local", everything, "dev", "lo", "table", "100")
		sandboxtest.Run(t, in, "", "ip", family, "rule", "add", "fwmark", "0x111/0xfff", "lookup", "100", "priority", "32764")
	}
	InstallRules(t, in, u, by)
}

// InstallRules puts the rules alone into a namespace.
func InstallRules(t testing.TB, in *os.File, u upstream.PodRules, by Program) {
	t.Helper()
	if by == NFT {
		sandboxtest.Run(t, in, native(u), "nft", "-f", "-")
		return
	}
	sandboxtest.Run(t, in, text(u, interception.IPv4), string(by)+"-restore", "--noflush")
	if u.IPv6 {
		sandboxtest.Run(t, in, text(u, interception.IPv6), strings.Replace(string(by), "ip", "ip6", 1)+"-restore", "--noflush")
	}
}

// text returns the rules of Istio's node agent of one family as iptables-restore reads them.
func text(u upstream.PodRules, family interception.Family) string {
	lo, probe := "127.0.0.1/32", "169.254.7.127"
	if family == interception.IPv6 {
		lo, probe = "::1/128", "fd16:9254:7127:1337:ffff:ffff:ffff:ffff"
	}
	const notProxy = "-m mark ! --mark 0x539/0xfff"
	tables := map[string][]string{"nat": {"-A ISTIO_OUTPUT -d " + probe + " -p tcp -m tcp -j ACCEPT"}}
	add := func(table string, lines ...string) { tables[table] = append(tables[table], lines...) }
	if !u.Unmarked {
		add("mangle", "-A ISTIO_PRERT -m mark --mark 0x539/0xfff -j CONNMARK --set-xmark 0x111/0xfff")
	}
	tproxy := u.Generation == upstream.GenerationTProxy || u.Generation == upstream.GenerationTProxyZones
	if tproxy {
		add("mangle", "-A ISTIO_PRERT -s "+probe+" -p tcp -m tcp -j ACCEPT", "-A ISTIO_PRERT ! -d "+lo+" -p tcp -i lo -j ACCEPT",
			"-A ISTIO_PRERT -p tcp -m tcp --dport 15008 "+notProxy+" -j TPROXY --on-port 15008 --tproxy-mark 0x111/0xfff",
			"-A ISTIO_PRERT -p tcp -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
			"-A ISTIO_PRERT ! -d "+lo+" -p tcp "+notProxy+" -j TPROXY --on-port 15006 --tproxy-mark 0x111/0xfff")
	}
	add("mangle", "-A ISTIO_OUTPUT -m connmark --mark 0x111/0xfff -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff")
	for _, name := range u.Reroute {
		add("nat", fmt.Sprintf("-A ISTIO_PRERT -i %s -p tcp -j REDIRECT --to-ports 15001", name),
			fmt.Sprintf("-A ISTIO_PRERT -i %s -p tcp -j RETURN", name))
	}
	if !tproxy && !u.BypassInbound {
		add("nat", "-A ISTIO_PRERT -s "+probe+" -p tcp -m tcp -j ACCEPT",
			"-A ISTIO_PRERT ! -d "+lo+" -p tcp ! --dport 15008 "+notProxy+" -j REDIRECT --to-ports 15006")
	}
	switch {
	case u.DNS && u.Generation == upstream.GenerationTProxy:
		add("nat", "-A ISTIO_OUTPUT ! -o lo -p udp -m udp --dport 53 -j REDIRECT --to-port 15053")
	case u.DNS:
		add("nat", "-A ISTIO_OUTPUT ! -o lo -p udp "+notProxy+" -m udp --dport 53 -j REDIRECT --to-port 15053",
			"-A ISTIO_OUTPUT ! -d "+lo+" -p tcp --dport 53 "+notProxy+" -j REDIRECT --to-ports 15053")
		add("raw", "-A ISTIO_OUTPUT -p udp -m mark --mark 0x539/0xfff -m udp --dport 53 -j CT --zone 1",
			"-A ISTIO_PRERT -p udp "+notProxy+" -m udp --sport 53 -j CT --zone 1")
	}
	add("nat", "-A ISTIO_OUTPUT -p tcp -m mark --mark 0x111/0xfff -j ACCEPT", "-A ISTIO_OUTPUT ! -d "+lo+" -o lo -j ACCEPT",
		"-A ISTIO_OUTPUT ! -d "+lo+" -p tcp "+notProxy+" -j REDIRECT --to-ports 15001")
	return joined(tables, tproxy)
}

// joined returns the tables' lines with their chains. Nothing of TPROXY is in nat's prerouting.
func joined(tables map[string][]string, tproxy bool) string {
	var text strings.Builder
	for table, lines := range tables {
		chains := "-N ISTIO_OUTPUT\n-A OUTPUT -j ISTIO_OUTPUT\n"
		if table != "nat" || !tproxy {
			chains += "-N ISTIO_PRERT\n-A PREROUTING -j ISTIO_PRERT\n"
		}
		fmt.Fprintf(&text, "*%s\n%s%s\nCOMMIT\n", table, chains, strings.Join(lines, "\n"))
	}
	return text.String()
}

// native returns the same rules as nft reads them.
func native(u upstream.PodRules) string {
	families := []struct{ ip, lo, probe string }{{"ip", "127.0.0.1/32", "169.254.7.127"}}
	if u.IPv6 {
		families = append(families, struct{ ip, lo, probe string }{"ip6", "::1/128", "fd16:9254:7127:1337:ffff:ffff:ffff:ffff"})
	}
	in, out := "", ""
	for _, name := range u.Reroute {
		in += fmt.Sprintf("iifname %s meta l4proto tcp counter redirect to :15001\niifname %s meta l4proto tcp counter return\n", name, name)
	}
	dns, self, capture := "", "", ""
	for _, f := range families {
		if !u.BypassInbound {
			in += fmt.Sprintf("meta l4proto tcp %s saddr %s counter accept\n", f.ip, f.probe)
			in += fmt.Sprintf("%s daddr != %s tcp dport != 15008 mark and 0xfff != 0x539 counter redirect to :15006\n", f.ip, f.lo)
		}
		out += fmt.Sprintf("meta l4proto tcp %s daddr %s counter accept\n", f.ip, f.probe)
		dns += fmt.Sprintf("%s daddr != %s tcp dport 53 mark and 0xfff != 0x539 counter redirect to :15053\n", f.ip, f.lo)
		self += fmt.Sprintf("oifname lo %s daddr != %s counter accept\n", f.ip, f.lo)
		capture += fmt.Sprintf("meta l4proto tcp %s daddr != %s mark and 0xfff != 0x539 counter redirect to :15001\n", f.ip, f.lo)
	}
	if u.DNS {
		out += "oifname != lo mark and 0xfff != 0x539 udp dport 53 counter redirect to :15053\n" + dns
	}
	out += "meta l4proto tcp mark and 0xfff == 0x111 counter accept\n" + self + capture
	table := func(kind, priority, outType, in, out string) string {
		return fmt.Sprintf(`table inet istio-ambient-%s {
chain istio-prerouting {
%s
}
chain istio-output {
%s
}
chain prerouting {
 type %s hook prerouting priority %s; policy accept; jump istio-prerouting
}
chain output {
 type %s hook output priority %s; policy accept; jump istio-output
}
}
`, kind, in, out, strings.Replace(outType, "route", "filter", 1), priority, outType, priority)
	}
	mark := "meta mark & 0xfff == 0x539 counter ct mark set ct mark & 0xfffff000 | 0x111"
	if u.Unmarked {
		mark = ""
	}
	text := table("nat", "-100", "nat", in, out) + table("mangle", "-150", "route",
		mark, "ct mark and 0xfff == 0x111 counter meta mark set ct mark")
	if u.DNS {
		text += table("raw", "-300", "filter", "udp sport 53 meta mark and 0xfff != 0x539 counter ct zone set 1",
			"udp dport 53 meta mark and 0xfff == 0x539 counter ct zone set 1")
	}
	return text
}
