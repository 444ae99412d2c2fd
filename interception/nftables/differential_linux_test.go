// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
)

// matches has a match for every field and every way in which its condition is encoded. Those on interfaces and owners are
// known in the hook postrouting only, or in input.
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
		"src, dst and sets":  {Src: in(prefixes("10.1.2.3/32")), Dst: in(prefixes("10.1.2.4/32")), SrcSet: interception.Is(set4), DstSet: interception.Not(set4)},
		"tcp":                {L4: interception.TCP()},
		"udp":                {L4: interception.UDP()},
		"dport":              {L4: interception.TCP().To(interception.Ports(15008))},
		"not dport":          {L4: interception.UDP().NotTo(interception.Ports(53))},
		"dport range":        {L4: interception.TCP().To(interception.PortRange(80, 90))},
		"not dport range":    {L4: interception.TCP().NotTo(interception.PortRange(80, 90))},
		"dport all":          {L4: interception.TCP().To(interception.AllPorts())},
		"not dport all":      {L4: interception.TCP().NotTo(interception.AllPorts())},
		"dports":             {L4: interception.TCP().To(interception.Ports(80, 443))},
		"not dports":         {L4: interception.UDP().NotTo(interception.Ports(53, 5353, 65535))},
		"dports and ranges":  {L4: interception.TCP().To(interception.Ports(0, 80, 443, 444, 445, 65534, 65535))},
		"sport":              {L4: interception.UDP().From(interception.Ports(53))},
		"not sports":         {L4: interception.TCP().NotFrom(interception.Ports(80, 443))},
		"sport and dport":    {L4: interception.TCP().From(interception.Ports(1)).To(interception.Ports(2))},
		"uid":                {UID: interception.Is(interception.UIDs(1337))},
		"not uid":            {UID: interception.Not(interception.UIDs(0))},
		"uid range":          {UID: interception.Is(interception.UIDs(1337, 1338))},
		"not uid range":      {UID: interception.Not(interception.UIDs(1337, 1338))},
		"uids":               {UID: interception.Is(interception.UIDs(1337, 1339))},
		"not uids, ranges":   {UID: interception.Not(uids)},
		"uid last":           {UID: interception.Is(interception.UIDs(0, 4294967294, 4294967295))},
		"gid":                {GID: interception.Is(interception.GIDs(1337))},
		"not gid":            {GID: interception.Not(interception.GIDs(1337))},
		"gids":               {GID: interception.Not(interception.GIDs(1337, 1339))},
		"gid range":          {GID: interception.Is(interception.GIDs(256, 257, 258))},
		"gids and ranges":    {GID: interception.Is(interception.GIDs(1, 256, 257, 258))},
		"everything": {
			Family: interception.IPv4, Src: in(prefixes("10.0.0.0/8")), Dst: notIn(prefixes("10.1.0.0/16", "10.3.0.0/16")),
			SrcSet: interception.Is(set4), DstSet: interception.Not(set4),
			L4:  interception.TCP().From(interception.PortRange(1024, 65535)).NotTo(interception.Ports(15001, 15006)),
			UID: interception.Not(interception.UIDs(1337)), GID: interception.Not(interception.GIDs(1337)),
		},
	}
}

// hookFor is a hook in which all that the match asks for is known.
func hookFor(m interception.Match) interception.Hook {
	if m.In.Present() {
		return interception.Input
	}
	return interception.Postrouting
}

// TestSameAsNFT applies plans by netlink and loads their text with nft: nft lists the same rules for both.
func TestSameAsNFT(t *testing.T) {
	t.Parallel()
	for name, match := range matches(interception.SetRef{Name: "excluded-v4", Family: interception.IPv4}, interception.SetRef{Name: "excluded-v6", Family: interception.IPv6}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, build(t, "mesh-test", func(b *interception.Builder) {
				b.Set("excluded-v4", prefixes("10.0.0.0/8", "11.0.0.0/9", "192.0.2.7/32"), "excluded destinations")
				b.Set("excluded-v6", prefixes("2001:db8::/32", "fc00::/7"), "excluded destinations")
				chain := b.Mangle("chain")
				chain.Entry(hookFor(match), match, "what the test is about")
				chain.Do("the.rule", match, interception.Return{}, "what the test is about: a.b (c), d/e-f")
			}))
		})
	}
}

// compare fails when nft doesn't list the same for both ways of applying the plan.
func compare(t *testing.T, plan *interception.Plan) {
	t.Helper()
	script, err := render.NFT(plan)
	if err != nil {
		t.Fatal(err)
	}
	byNetlink, byText := newPod(t), newPod(t)
	byNetlink.apply(t, plan)
	byText.load(t, string(script))
	want, got := byText.ruleset(t), byNetlink.ruleset(t)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nft lists another ruleset than what it loaded (-text +netlink):\n%s\nscript:\n%s", diff, script)
	}
	if want == "" {
		t.Error("nft lists nothing")
	}
}
