// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
	"github.com/meshcni/meshcni/internal/golden"
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
		"tcp":               {L4: interception.TCP()},
		"udp":               {L4: interception.UDP()},
		"dport":             {L4: interception.TCP().To(interception.Ports(15008))},
		"not dport":         {L4: interception.UDP().NotTo(interception.Ports(53))},
		"dport range":       {L4: interception.TCP().To(interception.PortRange(80, 90))},
		"not dport range":   {L4: interception.TCP().NotTo(interception.PortRange(80, 90))},
		"dport all":         {L4: interception.TCP().To(interception.AllPorts())},
		"not dport all":     {L4: interception.TCP().NotTo(interception.AllPorts())},
		"dports":            {L4: interception.TCP().To(interception.Ports(80, 443))},
		"not dports":        {L4: interception.UDP().NotTo(interception.Ports(53, 5353, 65535))},
		"dports and ranges": {L4: interception.TCP().To(interception.Ports(0, 80, 443, 444, 445, 65534, 65535))},
		"sport":             {L4: interception.UDP().From(interception.Ports(53))},
		"not sports":        {L4: interception.TCP().NotFrom(interception.Ports(80, 443))},
		"sport and dport":   {L4: interception.TCP().From(interception.Ports(1)).To(interception.Ports(2))},
		"uid":               {UID: interception.Is(interception.UIDs(1337))},
		"not uid":           {UID: interception.Not(interception.UIDs(0))},
		"uid range":         {UID: interception.Is(interception.UIDs(1337, 1338))},
		"not uid range":     {UID: interception.Not(interception.UIDs(1337, 1338))},
		"uids":              {UID: interception.Is(interception.UIDs(1337, 1339))},
		"not uids, ranges":  {UID: interception.Not(uids)},
		"uid last":          {UID: interception.Is(interception.UIDs(0, 4294967294, 4294967295))},
		"gid":               {GID: interception.Is(interception.GIDs(1337))},
		"not gid":           {GID: interception.Not(interception.GIDs(1337))},
		"gids":              {GID: interception.Not(interception.GIDs(1337, 1339))},
		"gid range":         {GID: interception.Is(interception.GIDs(256, 257, 258))},
		"gids and ranges":   {GID: interception.Is(interception.GIDs(1, 256, 257, 258))},
		"everything": {
			Family: interception.IPv4, Src: in(prefixes("10.0.0.0/8")), Dst: notIn(prefixes("10.1.0.0/16", "10.3.0.0/16")),
			SrcSet: interception.Is(set4), DstSet: interception.Not(set4),
			L4:  interception.TCP().From(interception.PortRange(1024, 65535)).NotTo(interception.Ports(15001, 15006)),
			UID: interception.Not(interception.UIDs(1337)), GID: interception.Not(interception.GIDs(1337)),
		},
	}
}

// TestMatchesSameAsNFT has a rule for each match.
func TestMatchesSameAsNFT(t *testing.T) {
	t.Parallel()
	compare(t, build(t, "mesh-test", func(b *interception.Builder) {
		set4 := b.Set("excluded-v4", prefixes("10.0.0.0/8", "11.0.0.0/9", "192.0.2.7/32"), "excluded destinations")
		set6 := b.Set("excluded-v6", prefixes("2001:db8::/32", "fc00::/7"), "excluded: a.b (c), d/e-f")
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
	}))
}

// TestMatchesComplete checks that matches has every field of a Match, as it is and negated.
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
	}
	// Of the fields, Family has no negation, and L4 has two conditions in place of one.
	if want := 2*(reflect.TypeFor[interception.Match]().NumField()-2) + 1 + 2*2; len(seen) != want {
		t.Errorf("%d kinds of conditions, want %d: %v", len(seen), want, seen)
	}
}

// actions has every action in every table that takes it.
func actions(b *interception.Builder) {
	tcp := interception.Match{L4: interception.TCP()}
	fillChains(b.Raw("chain"), b.Raw("called"), map[interception.RuleID]interception.RawAction{
		"raw.accept": interception.Accept{}, "raw.return": interception.Return{}, "raw.drop": interception.Drop{},
	})
	fillChains(b.Mangle("chain"), b.Mangle("called"), map[interception.RuleID]interception.MangleAction{
		"mangle.accept": interception.Accept{}, "mangle.return": interception.Return{}, "mangle.drop": interception.Drop{},
	})
	nat := b.NAT("chain")
	fillChains(nat, b.NAT("called"), map[interception.RuleID]interception.NATAction{
		"nat.accept": interception.Accept{}, "nat.return": interception.Return{},
	})
	redirect := b.NAT("redirect")
	redirect.Do("nat.redirect", tcp, interception.RedirectTo{Port: 15001}, "an action")
	redirect.Entry(interception.Prerouting, interception.Match{}, "an entry")
	redirect.Entry(interception.Output, interception.Match{}, "an entry")
	nat.Entry(interception.Input, interception.Match{}, "an entry")
	nat.Entry(interception.Output, tcp, "a second entry of the hook")
	nat.Entry(interception.Postrouting, interception.Match{}, "an entry")
	fillChains(b.Filter("chain"), b.Filter("called"), map[interception.RuleID]interception.FilterAction{
		"filter.accept": interception.Accept{}, "filter.return": interception.Return{}, "filter.drop": interception.Drop{},
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

// fillChains gives a chain a rule for each action, and a jump to another chain.
func fillChains[A interception.Action](chain, called *interception.ChainRef[A], actions map[interception.RuleID]A) {
	for _, id := range slices.Sorted(maps.Keys(actions)) {
		chain.Do(id, interception.Match{L4: interception.TCP()}, actions[id], "an action")
	}
	table, _, _ := strings.Cut(string(slices.Min(slices.Collect(maps.Keys(actions)))), ".")
	chain.Call(interception.RuleID(table+".jump"), interception.Match{}, called, "a jump")
}

// TestGoldensSameAsNFT does the same with the plans of the golden cases.
func TestGoldensSameAsNFT(t *testing.T) {
	t.Parallel()
	cases, err := golden.Load("../testdata")
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
	const everywhere, allButNAT = 3, 1 // accept, return, jump; drop
	if want := 4*everywhere + 3*allButNAT + 1; len(got) != want {
		t.Errorf("%d pairs of table and action, want %d: %v", len(got), want, got)
	}
}

// compare fails when nft doesn't list the same for both ways of applying the plan, or when what it lists cannot be loaded.
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
