// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

// restore renders a plan for one family; the plan must be valid.
func restore(t testing.TB, plan *interception.Plan, family interception.Family) string {
	t.Helper()
	text, err := render.IPTablesRestore(plan, family)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ruleLines returns the filter table's chain "chain" without comments and "-A".
func ruleLines(t testing.TB, family interception.Family, match interception.Match, action interception.FilterAction) []string {
	t.Helper()
	plan := build(t, func(b *interception.Builder) {
		b.Set("v4", prefixes(t, "10.0.0.0/8,192.168.0.0/16"), "a set")
		b.Set("v6", prefixes(t, "::1/128"), "a set")
		b.Filter("chain").Do("the.rule", match, action, "why")
	})
	var lines []string
	for line := range strings.Lines(restore(t, plan, family)) {
		before, behind, rule := strings.Cut(strings.TrimSpace(line), ` -m comment --comment "the.rule `)
		if rule {
			_, verdict, _ := strings.Cut(behind, `"`)
			lines = append(lines, strings.TrimPrefix(before+verdict, "-A MESH-TEST_"))
		}
	}
	return lines
}

func TestIPTablesMatches(t *testing.T) {
	t.Parallel()
	tcp, udp := interception.TCP, interception.UDP
	in, notIn := interception.Is[interception.PrefixSet], interception.Not[interception.PrefixSet]
	names := interception.Interfaces
	v4, v6 := interception.SetRef{Name: "v4", Family: interception.IPv4}, interception.SetRef{Name: "v6", Family: interception.IPv6}
	rst := interception.TCPFlags{Mask: interception.FlagRST | interception.FlagURG}
	mark := interception.MarkBits{Value: 0x100, Mask: 0xff00}
	for _, test := range []struct {
		match interception.Match
		want  string // for IPv4, ";" between lines
	}{
		{interception.Match{}, ""},
		{interception.Match{Family: interception.IPv4}, ""},
		{interception.Match{In: interception.Is(names("lo"))}, "-i lo"},
		{interception.Match{In: interception.Not(names("eth*"))}, "! -i eth+"},
		{interception.Match{Out: interception.Is(names("eth0", "lo"))}, "-o eth0;-o lo"},
		{interception.Match{Out: interception.Is(names("eth0", "eth0*", "eth*", "eth", "net*"))}, "-o eth+;-o net+"},
		{interception.Match{Src: in(prefixes(t, "10.0.0.0/8"))}, "-s 10.0.0.0/8"},
		{interception.Match{Dst: notIn(prefixes(t, "127.0.0.1/32"))}, "! -d 127.0.0.1/32"},
		{interception.Match{Dst: in(prefixes(t, "10.0.0.0/8,127.0.0.0/8"))}, "-d 10.0.0.0/8;-d 127.0.0.0/8"},
		{interception.Match{Dst: in(prefixes(t, "0.0.0.0/0"))}, ""},
		{interception.Match{SrcSet: interception.Is(v4)}, "-s 10.0.0.0/8;-s 192.168.0.0/16"},
		{interception.Match{Src: in(prefixes(t, "10.1.0.0/16,192.0.0.0/8")), SrcSet: interception.Is(v4)}, "-s 10.1.0.0/16;-s 192.168.0.0/16"},
		{interception.Match{L4: tcp()}, "-p tcp"},
		{interception.Match{L4: udp().To(interception.Ports(53))}, "-p udp -m udp --dport 53"},
		{interception.Match{L4: tcp().NotTo(interception.Ports(53))}, "-p tcp -m tcp ! --dport 53"},
		{interception.Match{L4: tcp().From(interception.PortRange(80, 90)).NotTo(interception.PortRange(7, 9))}, "-p tcp -m tcp --sport 80:90 ! --dport 7:9"},
		{interception.Match{L4: tcp().NotTo(interception.PortRange(0, 79))}, "-p tcp -m tcp --dport 80:65535"},
		{interception.Match{L4: tcp().NotFrom(interception.PortRange(1, 65535))}, "-p tcp -m tcp --sport 0"},
		{interception.Match{L4: tcp().To(interception.AllPorts())}, "-p tcp"},
		{interception.Match{L4: tcp().To(interception.Ports(1, 3)).NotFrom(interception.Ports(5, 7))}, "-p tcp -m multiport ! --sports 5,7 -m multiport --dports 1,3"},
		{interception.Match{L4: tcp().Flags(interception.Opening())}, "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN"},
		{interception.Match{L4: tcp().NotFlags(rst)}, "-p tcp -m tcp ! --tcp-flags RST,URG NONE"},
		{interception.Match{UID: interception.Is(interception.UIDs(0))}, "-m owner --uid-owner 0"},
		{interception.Match{UID: interception.Is(interception.UIDs(1, 3, 4))}, "-m owner --uid-owner 1;-m owner --uid-owner 3-4"},
		{interception.Match{GID: interception.Not(interception.GIDs(1, 3, 4))}, "-m owner --socket-exists -m owner ! --gid-owner 1 -m owner ! --gid-owner 3-4"},
		{
			interception.Match{UID: interception.Not(interception.UIDs(1)), GID: interception.Not(interception.GIDs(2))},
			"-m owner --socket-exists -m owner ! --uid-owner 1 -m owner ! --gid-owner 2",
		},
		{interception.Match{UID: interception.Is(interception.UIDs(4294967294, 4294967295))}, "-m owner --uid-owner 4294967294"},
		{interception.Match{UID: interception.Not(interception.UIDs(4294967295))}, "-m owner --socket-exists"},
		{interception.Match{Mark: interception.Is(interception.WholeMark(1337))}, "-m mark --mark 0x539"},
		{interception.Match{Mark: interception.Not(mark)}, "-m mark ! --mark 0x100/0xff00"},
		{interception.Match{ConnMark: interception.Not(interception.WholeMark(0))}, "-m connmark ! --mark 0x0"},
		{interception.Match{ConnMark: interception.Is(mark)}, "-m connmark --mark 0x100/0xff00"},
		{interception.Match{State: interception.Is(interception.StateEstablished | interception.StateRelated)}, "-m conntrack --ctstate RELATED,ESTABLISHED"},
		{interception.Match{Direction: interception.DirectionReply}, "-m conntrack --ctdir REPLY"},
		{
			interception.Match{Direction: interception.DirectionOriginal, State: interception.Not(interception.StateNew)},
			"-m conntrack ! --ctstate NEW -m conntrack --ctdir ORIGINAL",
		},
		{interception.Match{State: interception.Not(interception.ConnState(31))}, "-m conntrack ! --ctstate INVALID,NEW,RELATED,ESTABLISHED,UNTRACKED"},
		{
			interception.Match{Dst: in(prefixes(t, "10.0.0.0/8,127.0.0.0/8")), UID: interception.Is(interception.UIDs(1, 3))},
			"-d 10.0.0.0/8 -m owner --uid-owner 1;-d 10.0.0.0/8 -m owner --uid-owner 3;-d 127.0.0.0/8 -m owner --uid-owner 1;-d 127.0.0.0/8 -m owner --uid-owner 3",
		},
		// Matches that match nothing, or only the other family.
		{interception.Match{Family: interception.IPv6}, "-"},
		{interception.Match{Dst: in(prefixes(t, "::1/128"))}, "-"},
		{interception.Match{SrcSet: interception.Not(v6)}, "-"},
		{interception.Match{Dst: notIn(prefixes(t, "0.0.0.0/0"))}, "-"},
		{interception.Match{Dst: in(prefixes(t, "172.16.0.0/12")), DstSet: interception.Is(v4)}, "-"},
		{interception.Match{L4: tcp().NotTo(interception.AllPorts())}, "-"},
		{interception.Match{GID: interception.Is(interception.GIDs(4294967295))}, "-"},
	} {
		var want []string
		if test.want != "-" {
			for words := range strings.SplitSeq(test.want, ";") {
				want = append(want, strings.Join(strings.Fields("CHAIN "+words+" -j DROP"), " "))
			}
		}
		if diff := cmp.Diff(want, ruleLines(t, interception.IPv4, test.match, interception.Drop{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.match, diff)
		}
	}
}

// TestIPTablesSortsOut checks the chains for lists of which no member may match.
func TestIPTablesSortsOut(t *testing.T) {
	t.Parallel()
	excluded := interception.Not(prefixes(t, "10.0.0.0/8,127.0.0.0/8"))
	match := interception.Match{Dst: excluded, L4: interception.TCP()}
	want := []string{"CHAIN -p tcp -j MESH-TEST_1", "1 -d 10.0.0.0/8 -j RETURN", "1 -d 127.0.0.0/8 -j RETURN", "1 -p tcp -j DROP"}
	if diff := cmp.Diff(want, ruleLines(t, interception.IPv4, match, interception.Drop{})); diff != "" {
		t.Errorf("a verdict (-want +got):\n%s", diff)
	}
	// A return must be from the rule's own chain, whose other rules move to a separate one.
	want = []string{
		"CHAIN -p tcp -g MESH-TEST_1", "CHAIN -g MESH-TEST_2",
		"1 -d 10.0.0.0/8 -g MESH-TEST_2", "1 -d 127.0.0.0/8 -g MESH-TEST_2", "1 -j RETURN",
	}
	if diff := cmp.Diff(want, ruleLines(t, interception.IPv4, match, interception.Return{})); diff != "" {
		t.Errorf("a return (-want +got):\n%s", diff)
	}
	both := interception.Match{
		Src: interception.Is(prefixes(t, "10.0.0.0/8")), SrcSet: interception.Not(interception.SetRef{Name: "v4", Family: interception.IPv4}),
		Out: interception.Not(interception.Interfaces("lo", "eth*")),
	}
	want = []string{
		"CHAIN -s 10.0.0.0/8 -j MESH-TEST_1", "1 -s 10.0.0.0/8 -j RETURN", "1 -s 192.168.0.0/16 -j RETURN",
		"1 -o eth+ -j RETURN", "1 -o lo -j RETURN", "1 -j ACCEPT",
	}
	if diff := cmp.Diff(want, ruleLines(t, interception.IPv4, both, interception.Accept{})); diff != "" {
		t.Errorf("two conditions on an address (-want +got):\n%s", diff)
	}
}

// TestIPTablesPorts packs ports into multiports of 15 slots.
func TestIPTablesPorts(t *testing.T) {
	t.Parallel()
	odd := func(n int) interception.PortSet { // n ports without neighbours
		var ports []interception.Port
		for i := range n {
			ports = append(ports, interception.Port(2*i+1))
		}
		return interception.Ports(ports...)
	}
	fourteen := "1,3,5,7,9,11,13,15,17,19,21,23,25,27"
	for _, test := range []struct {
		name  string
		ports interception.PortSet
		want  []string
	}{
		{"two", odd(2), []string{"1,3"}},
		{"fifteen", odd(15), []string{fourteen + ",29"}},
		{"sixteen", odd(16), []string{fourteen + ",29", "31"}},
		{"a range that fits", odd(13).Union(interception.PortRange(100, 200)), []string{"1,3,5,7,9,11,13,15,17,19,21,23,25,100:200"}},
		{"a range at slot 15", odd(14).Union(interception.PortRange(100, 200)), []string{fourteen, "100:200"}},
		{"a range and a port at slot 15", odd(14).Union(interception.PortRange(100, 200)).Union(interception.Ports(300)), []string{fourteen, "100:200,300"}},
		{"ends", interception.PortRange(0, 1).Union(interception.Ports(65535)), []string{"0:1,65535"}},
	} {
		var is []string
		not := "CHAIN -p udp"
		for _, list := range test.want {
			is = append(is, "CHAIN -p udp -m multiport --dports "+list+" -j ACCEPT")
			not += " -m multiport ! --dports " + list
		}
		got := ruleLines(t, interception.IPv6, interception.Match{L4: interception.UDP().To(test.ports)}, interception.Accept{})
		if diff := cmp.Diff(is, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		got = ruleLines(t, interception.IPv6, interception.Match{L4: interception.UDP().NotTo(test.ports)}, interception.Accept{})
		if diff := cmp.Diff([]string{not + " -j ACCEPT"}, got); diff != "" {
			t.Errorf("not %s (-want +got):\n%s", test.name, diff)
		}
	}
	// More ports than one rule can hold.
	got := ruleLines(t, interception.IPv4, interception.Match{L4: interception.TCP().NotFrom(odd(15*16 + 1))}, interception.Accept{})
	if len(got) != 1+17+1 || got[0] != "CHAIN -p tcp -j MESH-TEST_1" || !strings.HasPrefix(got[1], "1 -p tcp -m multiport --sports 1,3,") ||
		got[18] != "1 -p tcp -j ACCEPT" {
		t.Errorf("241 excluded ports: got\n%s", strings.Join(got, "\n"))
	}
}

func TestIPTablesActions(t *testing.T) {
	t.Parallel()
	tcp := interception.Match{L4: interception.TCP()}
	v4, v6 := tcp, tcp
	v4.Family, v6.Family = interception.IPv4, interception.IPv6
	addr4, addr6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")
	masked := interception.MarkBits{Value: 1, Mask: 0xff}
	plan := build(t, func(b *interception.Builder) {
		raw, mangle, nat, post, filter := b.Raw("a"), b.Mangle("b"), b.NAT("c"), b.NAT("d"), b.Filter("e")
		raw.Do("raw.zone", interception.Match{}, interception.SetZone{Zone: 2}, "why")
		raw.Do("raw.zone-orig", interception.Match{}, interception.SetZone{Zone: 2, Direction: interception.DirectionOriginal}, "why")
		raw.Do("raw.zone-reply", interception.Match{}, interception.SetZone{Zone: 2, Direction: interception.DirectionReply}, "why")
		raw.Do("raw.notrack", interception.Match{}, interception.NoTrack{}, "why")
		mangle.Do("mangle.tproxy", tcp, interception.TProxyTo{Port: 15006, Mark: interception.WholeMark(1337)}, "why")
		mangle.Do("mangle.mark", interception.Match{}, interception.SetMark{Mark: masked}, "why")
		mangle.Do("mangle.connmark", interception.Match{}, interception.SetConnMark{Mark: masked}, "why")
		mangle.Do("mangle.save", interception.Match{}, interception.SaveMark{}, "why")
		mangle.Do("mangle.restore", interception.Match{}, interception.RestoreMark{Mask: 0xff}, "why")
		nat.Do("nat.redirect", tcp, interception.RedirectTo{Port: 15001}, "why")
		nat.Do("nat.dnat.v4", v4, interception.DNATTo{Addr: addr4, Port: 80}, "why")
		nat.Do("nat.dnat.v6", v6, interception.DNATTo{Addr: addr6, Port: 80}, "why")
		post.Do("nat.snat.v4", v4, interception.SNATTo{Addr: addr4}, "why")
		post.Do("nat.snat.v6", v6, interception.SNATTo{Addr: addr6}, "why")
		post.Do("nat.keep.v4", interception.Match{Family: interception.IPv4}, interception.SNATTo{Keep: true}, "why")
		post.Do("nat.keep.v6", interception.Match{Family: interception.IPv6}, interception.SNATTo{Keep: true}, "why")
		nat.Call("nat.call", interception.Match{}, b.NAT("called"), "why")
		filter.Do("filter.accept", interception.Match{}, interception.Accept{}, "why")
		filter.Do("filter.return", interception.Match{}, interception.Return{}, "why")
		filter.Do("filter.drop", interception.Match{}, interception.Drop{}, "why")
		filter.Do("filter.log", interception.Match{}, interception.Log{Prefix: "word"}, "why")
		filter.Do("filter.log.words", interception.Match{}, interception.Log{Prefix: "two words: "}, "why")
		filter.Do("filter.reject", interception.Match{}, interception.Reject{}, "why")
		filter.Do("filter.reject.tcp", tcp, interception.Reject{}, "why")
		filter.Do("filter.reject.udp", interception.Match{L4: interception.UDP()}, interception.Reject{}, "why")
	})
	targets := func(family interception.Family) []string {
		var list []string
		for line := range strings.Lines(restore(t, plan, family)) {
			if _, target, rule := strings.Cut(strings.TrimSpace(line), " -j "); rule {
				list = append(list, target)
			}
		}
		return list
	}
	want := func(addr, endpoint, unspecified, unreachable string) []string {
		return []string{
			"CT --zone 2", "CT --zone-orig 2", "CT --zone-reply 2", "CT --notrack",
			"TPROXY --on-port 15006 --on-ip " + unspecified + " --tproxy-mark 0x539/0xffffffff", "MARK --set-xmark 0x1/0xff", "CONNMARK --set-xmark 0x1/0xff",
			"CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff", "CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff",
			"REDIRECT --to-ports 15001", "DNAT --to-destination " + endpoint, "MESH-TEST_CALLED", "SNAT --to-source " + addr, "ACCEPT",
			"ACCEPT", "RETURN", "DROP", "LOG --log-prefix word", `LOG --log-prefix "two words: "`,
			"REJECT --reject-with tcp-reset", "REJECT --reject-with " + unreachable, "REJECT --reject-with tcp-reset", "REJECT --reject-with " + unreachable,
		}
	}
	if diff := cmp.Diff(want("10.0.0.1", "10.0.0.1:80", "0.0.0.0", "icmp-port-unreachable"), targets(interception.IPv4)); diff != "" {
		t.Errorf("v4 (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want("2001:db8::1", "[2001:db8::1]:80", "::", "icmp6-port-unreachable"), targets(interception.IPv6)); diff != "" {
		t.Errorf("v6 (-want +got):\n%s", diff)
	}
}

// TestIPTablesFamilies checks that a family's text has no tables, rules or jumps of the other.
func TestIPTablesFamilies(t *testing.T) {
	t.Parallel()
	plan := build(t, func(b *interception.Builder) {
		output, raw := b.NAT("output"), b.Raw("empty")
		output.Entry(interception.Output, interception.Match{Family: interception.IPv4}, "v4 only")
		output.Do("output.v4", interception.Match{Dst: interception.Is(prefixes(t, "10.0.0.0/8"))}, interception.Return{}, "v4")
		raw.Entry(interception.Output, interception.Match{Dst: interception.Is(prefixes(t, "10.0.0.0/8,::1/128").Of(interception.IPv6))}, "v6 only")
	})
	const v4 = `*nat
-N MESH-TEST_OUTPUT
-A MESH-TEST_OUTPUT -d 10.0.0.0/8 -m comment --comment "output.v4 af3007d6 v4" -j RETURN
-A OUTPUT -m comment --comment "nat.output.output 8433b4c7 v4 only" -j MESH-TEST_OUTPUT
COMMIT
`
	const v6 = `*raw
-N MESH-TEST_EMPTY
-A OUTPUT -d ::1/128 -m comment --comment "raw.output.empty 3b97a6ea v6 only" -j MESH-TEST_EMPTY
COMMIT
`
	if diff := cmp.Diff(v4, restore(t, plan, interception.IPv4)); diff != "" {
		t.Errorf("v4 (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(v6, restore(t, plan, interception.IPv6)); diff != "" {
		t.Errorf("v6 (-want +got):\n%s", diff)
	}
	if text := restore(t, build(t, func(*interception.Builder) {}), interception.IPv4); text != "" {
		t.Errorf("a plan without tables: got %q", text)
	}
}

// TestIPTablesLiveSets covers conditions on ipsets, alone and beside others.
func TestIPTablesLiveSets(t *testing.T) {
	t.Parallel()
	live := build(t, func(b *interception.Builder) {
		pods, nets := b.LiveAddresses("pods", interception.IPv6, "pods"), b.LiveSet("nets", interception.IPv6, "networks")
		c := b.NAT("chain")
		c.Do("a.rule", interception.Match{
			SrcSet: interception.Not(nets), DstSet: interception.Is(pods), L4: interception.TCP().To(interception.Ports(80)),
			Src: interception.Is(interception.Prefixes(netip.MustParsePrefix("fd00::/8"))),
		}, interception.Return{}, "why")
	})
	text := restore(t, live, interception.IPv6)
	const want = "-s fd00::/8 -p tcp -m tcp --dport 80 -m set ! --match-set mesh-test_nets_6p src -m set --match-set mesh-test_pods_6a dst -m comment"
	if !strings.Contains(text, want) {
		t.Errorf("got %s, want %s", text, want)
	}
	if text := restore(t, live, interception.IPv4); strings.Contains(text, "-A") {
		t.Errorf("sets of the other family: got %s", text)
	}
}

func TestIPTablesRefuses(t *testing.T) {
	t.Parallel()
	live := build(t, func(b *interception.Builder) {
		b.LiveSet("a-name-too-long-for-ipsets", interception.IPv6, "members of a kind")
	})
	if text, err := render.IPTablesRestore(live, interception.IPv6); !errors.Is(err, interception.ErrUnsupported) || text != nil ||
		!strings.Contains(err.Error(), "live set a-name-too-long-for-ipsets (members of a kind)") {
		t.Errorf("a live set with a long name: got %q, %v", text, err)
	}
	if _, err := render.IPTablesRestore(live, interception.BothFamilies); !errors.Is(err, interception.ErrUnsupported) {
		t.Errorf("both families: got %v", err)
	}
	if _, err := render.IPTablesRestore(&interception.Plan{Owner: "x; reboot"}, interception.IPv4); !errors.Is(err, interception.ErrPlan) {
		t.Errorf("an invalid plan: got %v", err)
	}
	var hosts []netip.Prefix
	for i := range 300 {
		hosts = append(hosts, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 7), byte(i << 1), 1}), 32))
	}
	many := interception.Is(interception.Prefixes(hosts...))
	huge := build(t, func(b *interception.Builder) {
		b.NAT("chain").Do("a.rule", interception.Match{Src: many, Dst: many}, interception.Return{}, "too much")
	})
	if _, err := render.IPTablesRestore(huge, interception.IPv4); !errors.Is(err, interception.ErrUnsupported) ||
		!strings.Contains(err.Error(), "a.rule (too much)") {
		t.Errorf("90,000 lines: got %v", err)
	}
	deep := build(t, func(b *interception.Builder) {
		chain := b.NAT("chain")
		chain.Entry(interception.Output, interception.Match{}, "an entry")
		for i := range 16 {
			chain.Do(interception.RuleID(fmt.Sprintf("a.rule%d", i)), interception.Match{Out: interception.Not(interception.Interfaces("a", "b"))},
				interception.Return{}, "why")
		}
	})
	if _, err := render.IPTablesRestore(deep, interception.IPv4); !errors.Is(err, interception.ErrUnsupported) {
		t.Errorf("16 rules that go on in a chain of their own: got %v", err)
	}
}
