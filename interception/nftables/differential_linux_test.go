// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
	"github.com/meshcni/meshcni/internal/testing/golden"
)

// matches has a match for every field and every way in which its condition is encoded.
func matches(set4, set6 interception.SetRef) map[string]interception.Match {
	type match = interception.Match
	in := interception.Is[interception.PrefixSet]
	notIn := interception.Not[interception.PrefixSet]
	uids := interception.UIDs(1337).Union(interception.UIDs(2000, 2001, 2002))
	return map[string]match{
		"all":                {},
		"v4":                 {Family: interception.IPv4},
		"v6":                 {Family: interception.IPv6},
		"v4 with address":    {Family: interception.IPv4, Dst: in(prefixes("10.0.0.0/8"))},
		"in":                 {In: interception.Is(interception.Interfaces("lo"))},
		"not in":             {In: interception.Not(interception.Interfaces("eth0.100-a_b"))},
		"in several":         {In: interception.Is(interception.Interfaces("lo", "eth0"))},
		"out":                {Out: interception.Is(interception.Interfaces("fifteen-letters"))},
		"not out several":    {Out: interception.Not(interception.Interfaces("lo", "eth0"))},
		"src host":           {Src: in(prefixes("10.1.2.3/32"))},
		"not src host":       {Src: notIn(prefixes("10.1.2.3/32"))},
		"src v6 host":        {Src: in(prefixes("2001:db8::1/128"))},
		"not src v6":         {Src: notIn(prefixes("::1/128"))},
		"dst /8":             {Dst: in(prefixes("10.0.0.0/8"))},
		"not dst /8":         {Dst: notIn(prefixes("127.0.0.0/8"))},
		"dst /9":             {Dst: in(prefixes("10.128.0.0/9"))},
		"not dst /31":        {Dst: notIn(prefixes("10.128.0.2/31"))},
		"dst /0":             {Dst: in(prefixes("0.0.0.0/0"))},
		"dst v6 /32":         {Dst: in(prefixes("2001:db8::/32"))},
		"dst v6 /33":         {Dst: in(prefixes("2001:db8:8000::/33"))},
		"not dst v6 /127":    {Dst: notIn(prefixes("2001:db8::2/127"))},
		"dst v6 /0":          {Dst: in(prefixes("::/0"))},
		"dst v4-mapped":      {Dst: in(prefixes("::ffff:10.0.0.0/104"))},
		"dst neighbours":     {Dst: in(prefixes("10.0.0.0/8", "11.0.0.0/9"))},
		"not dst neighbours": {Dst: notIn(prefixes("10.0.0.0/8", "11.0.0.0/9"))},
		"dst v6 neighbours":  {Dst: in(prefixes("2001:db8::/32", "2001:db9::/33"))},
		"dst hosts":          {Dst: in(prefixes("10.1.2.3/32", "10.1.2.5/32"))},
		"dst several":        {Dst: in(prefixes("10.0.0.0/8", "192.168.0.0/16", "192.0.2.1/32"))},
		"not dst several":    {Dst: notIn(prefixes("10.0.0.0/8", "192.168.0.0/16"))},
		"dst first and last": {Dst: in(prefixes("0.0.0.0/8", "255.0.0.0/8"))},
		"src v6 several":     {Src: notIn(prefixes("2001:db8::/32", "fc00::/7", "::1/128"))},
		"src v6 last":        {Src: in(prefixes("2001:db8::/32", "ff00::/8"))},
		"src set":            {SrcSet: interception.Is(set4)},
		"not src set":        {SrcSet: interception.Not(set4)},
		"dst set":            {DstSet: interception.Is(set6)},
		"not dst set":        {DstSet: interception.Not(set6)},
		"src, dst and sets": {
			Src: in(prefixes("10.1.2.3/32")), Dst: in(prefixes("10.1.2.4/32")), SrcSet: interception.Is(set4), DstSet: interception.Not(set4),
		},
		"tcp":                  {L4: interception.TCP()},
		"udp":                  {L4: interception.UDP()},
		"dport":                {L4: interception.TCP().To(interception.Ports(15008))},
		"not dport":            {L4: interception.UDP().NotTo(interception.Ports(53))},
		"dport range":          {L4: interception.TCP().To(interception.PortRange(80, 90))},
		"not dport range":      {L4: interception.TCP().NotTo(interception.PortRange(80, 90))},
		"dport all":            {L4: interception.TCP().To(interception.AllPorts())},
		"not dport all":        {L4: interception.TCP().NotTo(interception.AllPorts())},
		"dports":               {L4: interception.TCP().To(interception.Ports(80, 443))},
		"not dports":           {L4: interception.UDP().NotTo(interception.Ports(53, 5353, 65535))},
		"dports and ranges":    {L4: interception.TCP().To(interception.Ports(0, 80, 443, 444, 445, 65534, 65535))},
		"sport":                {L4: interception.UDP().From(interception.Ports(53))},
		"not sports":           {L4: interception.TCP().NotFrom(interception.Ports(80, 443))},
		"sport and dport":      {L4: interception.TCP().From(interception.Ports(1)).To(interception.Ports(2))},
		"uid":                  {UID: interception.Is(interception.UIDs(1337))},
		"not uid":              {UID: interception.Not(interception.UIDs(0))},
		"uid range":            {UID: interception.Is(interception.UIDs(1337, 1338))},
		"not uid range":        {UID: interception.Not(interception.UIDs(1337, 1338))},
		"uids":                 {UID: interception.Is(interception.UIDs(1337, 1339))},
		"not uids, ranges":     {UID: interception.Not(uids)},
		"uid last":             {UID: interception.Is(interception.UIDs(0, 4294967294, 4294967295))},
		"gid":                  {GID: interception.Is(interception.GIDs(1337))},
		"not gid":              {GID: interception.Not(interception.GIDs(1337))},
		"gids":                 {GID: interception.Not(interception.GIDs(1337, 1339))},
		"gid range":            {GID: interception.Is(interception.GIDs(256, 257, 258))},
		"gids and ranges":      {GID: interception.Is(interception.GIDs(1, 256, 257, 258))},
		"in pattern":           {In: interception.Is(interception.Interfaces("eth*"))},
		"not in pattern":       {In: interception.Not(interception.Interfaces("eth*"))},
		"out patterns":         {Out: interception.Is(interception.Interfaces("lo", "eth0", "net1*", "net2*", "net20", "dummy"))},
		"not out patterns":     {Out: interception.Not(interception.Interfaces("lo", "eth0", "net1*", "net2*"))},
		"flags":                {L4: interception.TCP().Flags(interception.Opening())},
		"not flags":            {L4: interception.TCP().To(interception.Ports(80)).NotFlags(interception.Opening())},
		"flags none of":        {L4: interception.TCP().Flags(flags(interception.FlagFIN|interception.FlagRST, 0))},
		"flags not none of":    {L4: interception.TCP().NotFlags(flags(interception.FlagFIN|interception.FlagRST, 0))},
		"flag":                 {L4: interception.TCP().Flags(flags(interception.FlagSYN, interception.FlagSYN))},
		"not flag":             {L4: interception.TCP().NotFlags(flags(interception.FlagSYN, interception.FlagSYN))},
		"no flag":              {L4: interception.TCP().Flags(flags(interception.FlagURG, 0))},
		"flags all":            {L4: interception.TCP().Flags(flags(63, 63))},
		"flags of all":         {L4: interception.TCP().NotFlags(flags(63, interception.FlagPSH))},
		"mark":                 {Mark: interception.Is(interception.WholeMark(0x539))},
		"not mark":             {Mark: interception.Not(interception.WholeMark(0x539))},
		"mark 0":               {Mark: interception.Is(interception.WholeMark(0))},
		"mark bits":            {Mark: interception.Is(interception.MarkBits{Value: 0x300, Mask: 0xf00})},
		"not mark bits":        {Mark: interception.Not(interception.MarkBits{Value: 0x300, Mask: 0xf00})},
		"mark bits unset":      {Mark: interception.Is(interception.MarkBits{Mask: 0xf00})},
		"mark bits set":        {Mark: interception.Is(interception.MarkBits{Value: 0xf00, Mask: 0xf00})},
		"connmark":             {ConnMark: interception.Is(interception.WholeMark(0x539))},
		"not connmark":         {ConnMark: interception.Not(interception.WholeMark(0x539))},
		"connmark bits":        {ConnMark: interception.Is(interception.MarkBits{Value: 1, Mask: 1})},
		"not connmark bits":    {ConnMark: interception.Not(interception.MarkBits{Value: 0, Mask: 0xff})},
		"state":                {State: interception.Is(interception.StateInvalid)},
		"not state":            {State: interception.Not(interception.StateEstablished)},
		"states":               {State: interception.Is(interception.StateEstablished | interception.StateRelated)},
		"not states":           {State: interception.Not(interception.StateEstablished | interception.StateUntracked)},
		"states all":           {State: interception.Is(interception.ConnState(31))},
		"original":             {Direction: interception.DirectionOriginal},
		"reply":                {Direction: interception.DirectionReply},
		"reply and state":      {Direction: interception.DirectionReply, State: interception.Not(interception.StateRelated)},
		"state, mark and port": {L4: interception.TCP().To(interception.Ports(80)), Mark: interception.Is(interception.WholeMark(1)), State: interception.Is(interception.StateNew)},
		"everything": {
			Family: interception.IPv4, Src: in(prefixes("10.0.0.0/8")), Dst: notIn(prefixes("10.1.0.0/16", "10.3.0.0/16")),
			SrcSet: interception.Is(set4), DstSet: interception.Not(set4),
			L4:  interception.TCP().From(interception.PortRange(1024, 65535)).NotTo(interception.Ports(15001, 15006)),
			UID: interception.Not(interception.UIDs(1337)), GID: interception.Not(interception.GIDs(1337)),
			Mark: interception.Is(interception.MarkBits{Value: 1, Mask: 3}), ConnMark: interception.Not(interception.WholeMark(7)),
			State: interception.Is(interception.StateNew | interception.StateRelated),
		},
	}
}

func flags(mask, set interception.TCPFlag) interception.TCPFlags {
	return interception.TCPFlags{Mask: mask, Set: set}
}

func TestMatchesSameAsNFT(t *testing.T) {
	t.Parallel()
	compare(t, matchesPlan(t))
}

func matchesPlan(t *testing.T) *interception.Plan {
	t.Helper()
	return build(t, "mesh-test", func(b *interception.Builder) {
		set4 := b.Set("excluded-v4", prefixes("10.0.0.0/8", "11.0.0.0/9", "192.0.2.7/32"), "excluded destinations")
		set6 := b.Set("excluded-v6", prefixes("2001:db8::/32", "fc00::/7"), "excluded: a.b (c), d/e-f")
		b.LiveSet("live-v4", interception.IPv4, "members come and go")
		b.LiveSet("live-v6", interception.IPv6, "members come and go")
		b.LiveAddresses("pods-v4", interception.IPv4, "addresses come and go")
		b.LiveAddresses("pods-v6", interception.IPv6, "addresses come and go")
		all := matches(set4, set6)
		in, out := b.Mangle("in"), b.Mangle("out")
		for i, name := range slices.Sorted(maps.Keys(all)) {
			chain := out
			if all[name].In.Present() {
				chain = in
			}
			chain.Do(interception.RuleID(fmt.Sprintf("match.m%d", i)), all[name], interception.Return{}, name)
		}
		in.Entry(interception.Input, interception.Match{}, "all")
		out.Entry(interception.Postrouting, all["everything"], "everything")
	})
}

// TestMatchesComplete checks that matches has every field of a Match, plain and negated.
func TestMatchesComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	note := func(field string, present, negated bool) {
		if present {
			seen[fmt.Sprintf("%s %t", field, negated)] = true
		}
	}
	set4, set6 := interception.SetRef{Name: "a", Family: interception.IPv4}, interception.SetRef{Name: "b", Family: interception.IPv6}
	for _, m := range matches(set4, set6) {
		seen["family"] = seen["family"] || m.Family != interception.BothFamilies
		note("direction", m.Direction != interception.AnyDirection, m.Direction == interception.DirectionReply) // a reply is not the original direction
		fields := reflect.ValueOf(m)
		for i := range fields.NumField() {
			if condition, ok := fields.Field(i).Interface().(interface {
				Present() bool
				Negated() bool
			}); ok {
				note(fields.Type().Field(i).Name, condition.Present(), condition.Negated())
			}
		}
		note("sport", m.L4.SrcPort().Present(), m.L4.SrcPort().Negated())
		note("dport", m.L4.DstPort().Present(), m.L4.DstPort().Negated())
		note("flags", m.L4.TCPFlags().Present(), m.L4.TCPFlags().Negated())
	}
	// Of the fields, Family has no negation, and L4 has a protocol and its own conditions.
	conditions := reflect.TypeFor[interception.Match]().NumField() - 2 + reflect.TypeFor[interception.L4]().NumField() - 1
	if want := 2*conditions + 1; len(seen) != want {
		t.Errorf("%d kinds of conditions, want %d: %v", len(seen), want, seen)
	}
}

// actions has every action in every table that takes it.
func actions(b *interception.Builder) {
	tcp := interception.Match{L4: interception.TCP()}
	fillChains(b.Raw("chain"), b.Raw("called"), map[interception.RuleID]interception.RawAction{
		"raw.accept": interception.Accept{}, "raw.return": interception.Return{}, "raw.drop": interception.Drop{},
		"raw.zone": interception.SetZone{Zone: 0x102}, "raw.zone-0": interception.SetZone{},
		"raw.zone-original": interception.SetZone{Zone: 1, Direction: interception.DirectionOriginal},
		"raw.zone-reply":    interception.SetZone{Zone: 1, Direction: interception.DirectionReply}, "raw.notrack": interception.NoTrack{},
		"raw.log": log(),
	})
	bits := interception.MarkBits{Value: 0x12, Mask: 0xff}
	fillChains(b.Mangle("chain"), b.Mangle("called"), map[interception.RuleID]interception.MangleAction{
		"mangle.accept": interception.Accept{}, "mangle.return": interception.Return{}, "mangle.drop": interception.Drop{},
		"mangle.mark": interception.SetMark{Mark: interception.WholeMark(0x539)}, "mangle.mark-bits": interception.SetMark{Mark: bits},
		"mangle.mark-or":  interception.SetMark{Mark: interception.MarkBits{Value: 0xf0, Mask: 0xf0}},
		"mangle.mark-and": interception.SetMark{Mark: interception.MarkBits{Mask: 0xf0}},
		"mangle.save":     interception.SaveMark{}, "mangle.save-whole": interception.SaveMark{Mask: 0xffffffff},
		"mangle.restore": interception.RestoreMark{}, "mangle.restore-whole": interception.RestoreMark{Mask: 0xffffffff},
		"mangle.connmark": interception.SetConnMark{Mark: interception.WholeMark(1)}, "mangle.connmark-bits": interception.SetConnMark{Mark: bits},
		"mangle.log": log(),
	})
	tproxies(b.Mangle("tproxy"))
	nat := b.NAT("chain")
	fillChains(nat, b.NAT("called"), map[interception.RuleID]interception.NATAction{
		"nat.accept": interception.Accept{}, "nat.return": interception.Return{}, "nat.log": log(),
	})
	translations(b)
	nat.Entry(interception.Output, tcp, "a second entry of the hook")
	rejects(b)
	fillChains(b.Filter("chain"), b.Filter("called"), map[interception.RuleID]interception.FilterAction{
		"filter.accept": interception.Accept{}, "filter.return": interception.Return{}, "filter.drop": interception.Drop{}, "filter.log": log(),
	})
	for _, hook := range interception.Raw.Hooks() {
		b.Raw("hook-"+interception.ChainName(hook.String()[:4])).Entry(hook, interception.Match{}, "an entry")
	}
	for _, hook := range interception.Mangle.Hooks() {
		b.Mangle("hook-"+interception.ChainName(hook.String()[:4])).Entry(hook, interception.Match{}, "an entry")
	}
	for _, hook := range interception.Filter.Hooks() {
		b.Filter("hook-"+interception.ChainName(hook.String()[:4])).Entry(hook, interception.Match{}, "an entry")
	}
}

func log() interception.Log { return interception.Log{Prefix: "mesh (test): a.b, c/d-e "} }

// tproxies hands packets of each family, and of both, to a proxy.
func tproxies(c *interception.ChainRef[interception.MangleAction]) {
	tcp, udp := interception.TCP().To(interception.Ports(80)), interception.UDP()
	whole, bits := interception.WholeMark(0x539), interception.MarkBits{Value: 1, Mask: 3}
	c.Entry(interception.Prerouting, interception.Match{}, "an entry")
	c.Do("tproxy.both", interception.Match{L4: tcp}, interception.TProxyTo{Port: 15006, Mark: whole}, "an action")
	c.Do("tproxy.v4", interception.Match{Family: interception.IPv4, L4: udp}, interception.TProxyTo{Port: 15006, Mark: bits}, "an action")
	c.Do("tproxy.v6", interception.Match{Dst: interception.Not(prefixes("::1/128")), L4: tcp},
		interception.TProxyTo{Port: 15006, Mark: whole}, "an action")
	c.Do("tproxy.in", interception.Match{In: interception.Is(interception.Interfaces("lo", "eth*")), L4: tcp},
		interception.TProxyTo{Port: 15006, Mark: whole}, "an action")
}

// translations has addresses of each family, with and without a port.
func translations(b *interception.Builder) {
	destinations, sources := b.NAT("destinations"), b.NAT("sources")
	for i, address := range []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("2001:db8::1")} {
		of := interception.FamilyOf(address)
		match := interception.Match{Family: of}
		with := interception.Match{Family: of, L4: []interception.L4{interception.TCP(), interception.UDP().To(interception.Ports(53))}[i]}
		id := interception.RuleID(of.String())
		destinations.Do("dnat.addr."+id, match, interception.DNATTo{Addr: address}, "an action")
		destinations.Do("dnat.port."+id, with, interception.DNATTo{Addr: address, Port: 8080}, "an action")
		sources.Do("snat.addr."+id, match, interception.SNATTo{Addr: address}, "an action")
		sources.Do("keep."+id, match, interception.SNATTo{Keep: true}, "an action")
		sources.Do("snat.port."+id, with, interception.SNATTo{Addr: address, Port: 8080}, "an action")
	}
	destinations.Do("nat.redirect", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "an action")
	destinations.Entry(interception.Prerouting, interception.Match{}, "an entry")
	destinations.Entry(interception.Output, interception.Match{}, "an entry")
	sources.Entry(interception.Input, interception.Match{}, "an entry")
	sources.Entry(interception.Postrouting, interception.Match{}, "an entry")
}

// rejects has every family with every protocol.
func rejects(b *interception.Builder) {
	c := b.Filter("reject")
	for _, family := range []interception.Family{interception.BothFamilies, interception.IPv4, interception.IPv6} {
		for i, l4 := range []interception.L4{{}, interception.TCP(), interception.UDP().To(interception.Ports(53))} {
			id := interception.RuleID(fmt.Sprintf("reject.f%d-%d", family, i))
			c.Do(id, interception.Match{Family: family, L4: l4}, interception.Reject{}, "an action")
		}
	}
	c.Do("reject.addr", interception.Match{Src: interception.Is(prefixes("10.0.0.0/8"))}, interception.Reject{}, "an action")
}

// fillChains gives a chain a rule for each action, and a jump to another chain.
func fillChains[A interception.Action](chain, called *interception.ChainRef[A], actions map[interception.RuleID]A) {
	for _, id := range slices.Sorted(maps.Keys(actions)) {
		chain.Do(id, interception.Match{L4: interception.TCP()}, actions[id], "an action")
	}
	table, _, _ := strings.Cut(string(slices.Min(slices.Collect(maps.Keys(actions)))), ".")
	chain.Call(interception.RuleID(table+".jump"), interception.Match{}, called, "a jump")
}

// TestGoldensSameAsNFT does as TestMatchesSameAsNFT with the plans of the golden cases.
func TestGoldensSameAsNFT(t *testing.T) {
	t.Parallel()
	cases, err := golden.Load("../sidecar/testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			plan, _, err := c.Plan()
			if err != nil {
				t.Fatal(err)
			}
			compare(t, plan)
		})
	}
}

func TestActionsSameAsNFT(t *testing.T) {
	t.Parallel()
	plan := build(t, "mesh-test", actions)
	compare(t, plan)
	type pair struct {
		table  interception.TableKind
		action string
	}
	got := map[pair]bool{}
	for at, rule := range plan.Rules() {
		got[pair{at.Table, fmt.Sprintf("%T", rule.Action)}] = true
	}
	const everywhere, allButNAT = 4, 1 // accept, return, log, jump; drop
	const raw, mangle, nat, filter = 2, 5, 3, 1
	if want := 4*everywhere + 3*allButNAT + raw + mangle + nat + filter; len(got) != want {
		t.Errorf("%d pairs of table and action, want %d: %v", len(got), want, got)
	}
}

// compare fails when nft's listings of the two ways of applying differ, or cannot be loaded.
func compare(t *testing.T, plan *interception.Plan) {
	t.Helper()
	script, err := render.NFT(plan)
	if err != nil {
		t.Fatal(err)
	}
	ns := newPod(t)
	ns.apply(t, plan)
	byNetlink := ns.ruleset(t)
	ns.load(t, string(script)) // which replaces the table
	if diff := cmp.Diff(ns.ruleset(t), byNetlink); diff != "" {
		t.Errorf("nft lists another ruleset than what it loaded (-text +netlink):\n%s\nscript:\n%s", diff, script)
	}
	ns.load(t, "flush ruleset\n"+byNetlink)
	if diff := cmp.Diff(byNetlink, ns.ruleset(t)); diff != "" || byNetlink == "" {
		t.Errorf("the listing does not load back (-listing +loaded):\n%s", diff)
	}
}
