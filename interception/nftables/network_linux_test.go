// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
)

// localnet is a sysctl that is 0 in a fresh namespace.
const localnet = "ipv4/conf/all/route_localnet"

// newNetworkPod returns a pod in which the plan of network can be applied: where the kernel has no
// dummy links, mesh0 is another program's.
func newNetworkPod(t testing.TB) *pod {
	t.Helper()
	ns := newPod(t)
	if !hasDummies(t) {
		ns.ip(t, "link", "add", "mesh0", "type", "bridge")
		ns.ip(t, "link", "set", "mesh0", "up")
	}
	return ns
}

func hasDummies(t testing.TB) bool {
	t.Helper()
	ns := newPod(t)
	return ns.Namespace.Do(func() error {
		return exec.CommandContext(t.Context(), "ip", "link", "add", "dummy-test", "type", "dummy").Run()
	}) == nil
}

// network has each kind of object that the kernel has; its arguments differ between plans.
func network(t testing.TB, table interception.RoutingTable, addresses ...string) *interception.Plan {
	t.Helper()
	dummies := hasDummies(t)
	return build(t, "mesh-test", func(b *interception.Builder) {
		if dummies {
			b.Link(interception.Link{ID: "link.dummy", Name: "mesh0", Why: "a link"})
		}
		for i, address := range addresses {
			id := interception.RuleID("address." + string(rune('a'+i)))
			b.Address(interception.Address{ID: id, Device: "mesh0", Prefix: netip.MustParsePrefix(address), Why: "an address"})
		}
		b.Sysctl(interception.Sysctl{ID: "sysctl.localnet", Key: localnet, Value: 1, Why: "a sysctl"})
		b.Sysctl(interception.Sysctl{ID: "sysctl.link", Key: "ipv4/conf/mesh0/accept_local", Value: 1, Why: "a sysctl of the link"})
		for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
			all := interception.AllPrefixes().Of(family).Prefixes()[0]
			b.Route(interception.Route{
				ID: "route." + interception.RuleID(family.String()), Type: interception.RouteLocal, Destination: all,
				Device: "lo", Table: table, Why: "a route",
			})
			b.PolicyRule(interception.PolicyRule{
				ID: "rule." + interception.RuleID(family.String()), Family: family, Mark: interception.MarkBits{Value: 0x39, Mask: 0xff},
				Table: table, Priority: 20000, Why: "a policy rule",
			})
		}
		b.Route(interception.Route{
			ID: "route.link", Destination: netip.MustParsePrefix("192.0.2.0/24"), Device: "mesh0", Gateway: netip.MustParseAddr("10.1.0.2"),
			Why: "a route by a gateway",
		})
		b.NAT("output").Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
	})
}

func (p *pod) ip(t testing.TB, args ...string) string {
	t.Helper()
	return p.Run(t, "", append([]string{"ip"}, args...)...)
}

func (p *pod) sysctl(t testing.TB, key string) string {
	t.Helper()
	text, err := p.readSysctl(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (p *pod) readSysctl(key string) (string, error) {
	var text []byte
	err := p.Namespace.Do(func() (err error) {
		text, err = os.ReadFile("/proc/sys/net/" + key)
		return err
	})
	return strings.TrimSpace(string(text)), err
}

func (p *pod) setSysctl(t testing.TB, key, value string) {
	t.Helper()
	if err := p.Namespace.Do(func() error { return os.WriteFile("/proc/sys/net/"+key, []byte(value), 0) }); err != nil {
		t.Fatal(err)
	}
}

// everything returns all that plans can change, as ip and nft list it, without what differs each
// time: indices, link addresses and the order of rules' handles.
func (p *pod) everything(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, list := range []struct{ option, commands string }{
		{"-4", "rule\nroute show table all\n"},
		{"-6", "rule\nroute show table all\n"},
		{"-o", "address show scope global\naddress show dev lo\n"},
	} {
		for line := range strings.Lines(p.Run(t, list.commands, "ip", list.option, "-N", "-batch", "-")) {
			if strings.Contains(line, "fe80:") || strings.Contains(line, " proto 2 ") {
				continue // the kernel's own, which come and go by themselves
			}
			if list.option == "-o" {
				_, line, _ = strings.Cut(line, ": ")
			}
			b.WriteString(strings.ReplaceAll(line, "tentative ", ""))
		}
	}
	for line := range strings.Lines(p.ip(t, "-br", "link")) {
		b.WriteString(strings.Join(strings.Fields(line)[:2], " ") + "\n")
	}
	for _, key := range []string{localnet, "ipv4/ip_default_ttl", "ipv4/conf/mesh0/accept_local"} {
		if text, err := p.readSysctl(key); err == nil {
			b.WriteString(key + " = " + text + "\n")
		}
	}
	return b.String() + p.ruleset(t)
}

func TestNetworkObjects(t *testing.T) {
	t.Parallel()
	ns, dp := newNetworkPod(t), dataplane(t)
	before := ns.everything(t)
	plan := network(t, 133, "10.1.0.1/24", "fd01::1/64")
	ns.apply(t, plan)
	once := ns.everything(t)
	for _, want := range []string{
		"20000:\tfrom all fwmark 0x39/0xff lookup 133 proto", "2 default dev lo table 133 proto", "192.0.2.0/24 via 10.1.0.2 dev mesh0",
		"mesh0    inet 10.1.0.1/24", "mesh0    inet6 fd01::1/64", localnet + " = 1",
		`comment "sysctl ipv4/conf/all/route_localnet 0 1"`,
	} {
		if !strings.Contains(once, want) {
			t.Errorf("no %q in\n%s", want, once)
		}
	}
	ns.apply(t, plan)
	if diff := cmp.Diff(once, ns.everything(t)); diff != "" {
		t.Errorf("the second time changed something (-once +twice):\n%s", diff)
	}
	if err := dp.Remove(t.Context(), ns.Netns, "mesh-test"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
		t.Errorf("Remove left something (-before +after):\n%s", diff)
	}
}

// TestNetworkReplaced goes to a plan that shares some objects, replaces others, and lacks the rest.
func TestNetworkReplaced(t *testing.T) {
	t.Parallel()
	ns, fresh := newNetworkPod(t), newNetworkPod(t)
	ns.apply(t, network(t, 133, "10.1.0.1/24", "fd01::1/64"))
	next := network(t, 1000, "10.1.0.1/24", "10.1.0.9/24")
	ns.apply(t, next)
	fresh.apply(t, next)
	if diff := cmp.Diff(fresh.everything(t), ns.everything(t)); diff != "" {
		t.Errorf("not what a fresh namespace would have (-fresh +replaced):\n%s", diff)
	}
	bare := build(t, "mesh-test", func(b *interception.Builder) { b.NAT("output") })
	ns.apply(t, bare)
	other := newNetworkPod(t)
	other.apply(t, bare)
	if diff := cmp.Diff(other.everything(t), ns.everything(t)); diff != "" {
		t.Errorf("a plan without such objects leaves some (-fresh +replaced):\n%s", diff)
	}
}

// TestThereBefore has objects that already are as the plan wants them: they stay.
func TestThereBefore(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	ns.ip(t, "address", "add", "::6/128", "dev", "lo")
	ns.setSysctl(t, localnet, "1")
	ns.ip(t, "route", "add", "local", "0.0.0.0/0", "dev", "lo", "table", "100")
	ns.ip(t, "rule", "add", "fwmark", "0x111/0xfff", "priority", "32764", "lookup", "100")
	before := ns.everything(t)
	ns.apply(t, build(t, "mesh-test", func(b *interception.Builder) {
		b.Route(interception.Route{
			ID: "a.route", Type: interception.RouteLocal, Destination: netip.MustParsePrefix("0.0.0.0/0"), Device: "lo", Table: 100, Why: "a route",
		})
		b.PolicyRule(interception.PolicyRule{
			ID: "a.rule", Family: interception.IPv4, Mark: interception.MarkBits{Value: 0x111, Mask: 0xfff}, Table: 100, Priority: 32764, Why: "a policy rule",
		})
		b.Address(interception.Address{ID: "an.address", Device: "lo", Prefix: netip.MustParsePrefix("::6/128"), Why: "an address"})
		b.Sysctl(interception.Sysctl{ID: "a.sysctl", Key: localnet, Value: 1, Why: "a sysctl"})
	}))
	for _, line := range []string{"found route local 0.0.0.0/0 dev lo table 100", "found policy rule v4 priority 32764 mark 0x111/0xfff table 100"} {
		if rules := ns.ruleset(t); !strings.Contains(rules, line) {
			t.Errorf("the ledger has no %q:\n%s", line, rules)
		}
	}
	if err := dataplane(t).Remove(t.Context(), ns.Netns, "mesh-test"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
		t.Errorf("what was there before changed (-before +after):\n%s", diff)
	}
}

// TestSysctlTakenOver has another program set a sysctl after the plan: that value stays.
func TestSysctlTakenOver(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	const key = "ipv4/ip_default_ttl"
	ns.apply(t, build(t, "mesh-test", func(b *interception.Builder) {
		b.Sysctl(interception.Sysctl{ID: "a.sysctl", Key: key, Value: 65, Why: "a sysctl"})
	}))
	ns.setSysctl(t, key, "66")
	if err := dataplane(t).Remove(t.Context(), ns.Netns, "mesh-test"); err != nil {
		t.Fatal(err)
	}
	if got := ns.sysctl(t, key); got != "66" {
		t.Errorf("%s is %s, want 66", key, got)
	}
}

// TestCollisions has another program's object, which differs, in the place of each kind: nothing is
// written.
func TestCollisions(t *testing.T) {
	t.Parallel()
	for name, foreign := range map[string][]string{
		"route.v4":   {"-4", "route", "add", "10.9.0.0/16", "dev", "lo", "table", "133"},
		"route.v6":   {"-6", "route", "add", "::/0", "dev", "lo", "table", "133"},
		"route.link": {"-4", "route", "add", "192.0.2.0/24", "dev", "lo"},
		"rule.v4":    {"-4", "rule", "add", "priority", "20000", "fwmark", "7", "table", "7"},
		"rule.v6":    {"-6", "rule", "add", "priority", "20000", "fwmark", "0x39/0xff", "table", "134"},

		"rule.v4 by its mark": {"-4", "rule", "add", "priority", "100", "fwmark", "0x39", "table", "7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, _, _ := strings.Cut(name, " ")
			ns := newNetworkPod(t)
			ns.ip(t, foreign...)
			before := ns.everything(t)
			err := dataplane(t).Apply(t.Context(), ns.Netns, network(t, 133, "10.1.0.1/24"))
			var refused *interception.ApplyError
			if !errors.As(err, &refused) || refused.At != at || !errors.Is(err, unix.EEXIST) {
				t.Errorf("got %v, want EEXIST about %s", err, at)
			}
			if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
				t.Errorf("something was written (-before +after):\n%s", diff)
			}
		})
	}
}

// TestSelectorsOfPolicyRules has many rules of one priority, as rules by address usually have. Only
// a rule about the same packets is in the way.
func TestSelectorsOfPolicyRules(t *testing.T) {
	t.Parallel()
	to := func(address string) interception.PolicyRule {
		return interception.PolicyRule{
			ID: interception.RuleID("to." + address), Family: interception.IPv4, Destination: netip.MustParsePrefix(address + "/32"),
			Table: 101, Priority: 512, Why: "a policy rule",
		}
	}
	plan := build(t, "mesh-test", func(b *interception.Builder) {
		b.PolicyRule(to("10.0.0.1"))
		b.PolicyRule(to("10.0.0.2"))
		b.PolicyRule(interception.PolicyRule{ID: "by.link", Family: interception.IPv4, In: "vlan1", Table: 255, Priority: 512, Why: "a policy rule"})
	})
	for name, c := range map[string]struct {
		foreign []string
		refused string
	}{
		"apart":             {[]string{"to", "10.0.0.3", "iif", "vlan2", "lookup", "main"}, ""},
		"the same":          {[]string{"to", "10.0.0.2", "lookup", "101"}, ""},
		"a wider prefix":    {[]string{"to", "10.0.0.2/31", "iif", "vlan2", "lookup", "main"}, "to.10.0.0.2"},
		"all but a prefix":  {[]string{"not", "to", "10.0.0.3", "iif", "vlan2", "lookup", "main"}, "to.10.0.0.1"},
		"the link":          {[]string{"to", "10.0.0.3", "iif", "vlan1", "lookup", "main"}, "by.link"},
		"without selectors": {[]string{"lookup", "main"}, "to.10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newPod(t)
			ns.ip(t, append([]string{"-4", "rule", "add", "priority", "512"}, c.foreign...)...)
			before := ns.everything(t)
			err := dataplane(t).Apply(t.Context(), ns.Netns, plan)
			var refused *interception.ApplyError
			switch {
			case c.refused != "" && (!errors.As(err, &refused) || refused.At != c.refused || !errors.Is(err, unix.EEXIST)):
				t.Fatalf("got %v, want EEXIST about %s", err, c.refused)
			case c.refused == "" && err != nil:
				t.Fatal(err)
			case c.refused == "":
				if drifts := ns.drifts(t, plan); len(drifts) > 0 {
					t.Error(drifts)
				}
			}
			if err := dataplane(t).Remove(t.Context(), ns.Netns, plan.Owner); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
		})
	}
}

// TestSharedProtocol has two owners with one protocol number, by the options or by chance.
func TestSharedProtocol(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	shared, err := nftables.New(nftables.Options{Protocols: map[interception.Owner]uint8{"mesh-one": 77, "mesh-two": 77}})
	if err != nil {
		t.Fatal(err)
	}
	ruled := func(owner interception.Owner, priority uint32) *interception.Plan {
		return build(t, owner, func(b *interception.Builder) {
			b.PolicyRule(interception.PolicyRule{
				ID: "a.rule", Family: interception.IPv4, Mark: interception.WholeMark(1), Table: 7, Priority: priority, Why: "a policy rule",
			})
		})
	}
	if err := shared.Apply(t.Context(), ns.Netns, ruled("mesh-one", 20000)); err != nil {
		t.Fatal(err)
	}
	before := ns.everything(t)
	if !strings.Contains(before, "lookup 7 proto 77") {
		t.Errorf("the policy rule has not the protocol that was set:\n%s", before)
	}
	err = shared.Apply(t.Context(), ns.Netns, ruled("mesh-two", 20001))
	if err == nil || !strings.Contains(err.Error(), "Options.Protocols") {
		t.Errorf("got %v, want an error that names the option", err)
	}
	if err := shared.Remove(t.Context(), ns.Netns, "mesh-two"); err == nil {
		t.Error("Remove: no error")
	}
	if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
		t.Errorf("the first owner's objects changed:\n%s", diff)
	}
	if _, err := nftables.New(nftables.Options{Protocols: map[interception.Owner]uint8{"mesh-one": 2}}); err == nil {
		t.Error("the kernel's own protocol is accepted")
	}
}

// TestLinks covers links. Where the kernel lacks their kind, Apply reports so and writes nothing.
func TestLinks(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::7")
	for name, link := range map[string]interception.Link{
		"dummy":    {},
		"geneve":   {Geneve: &interception.Geneve{VNI: 1000, Remote: v4, Port: 6081}},
		"vxlan v4": {VXLAN: &interception.VXLAN{VNI: 1000, Remote: v4, Port: 4789}, MTU: 1450},
		"vxlan v6": {VXLAN: &interception.VXLAN{VNI: 1000, Remote: v6, Port: 4789}, HardwareAddr: "02:00:00:00:00:07"},
		"veth":     {Veth: &interception.Veth{Peer: "mesh1", Namespace: "proxy"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, dp, proxy := newPod(t), dataplane(t), newPod(t)
			netns := ns.With("proxy", proxy.Netns)
			before := ns.everything(t) + proxy.everything(t)
			link.ID, link.Name, link.Why = "a.link", "mesh0", "a link"
			plan := build(t, "mesh-test", func(b *interception.Builder) {
				b.Address(interception.Address{ID: "an.address", Device: "lo", Prefix: netip.MustParsePrefix("fd00::1/128"), Why: "an address"})
				b.Sysctl(interception.Sysctl{ID: "a.sysctl", Key: localnet, Value: 1, Why: "a sysctl"})
				b.Link(link)
			})
			err := dp.Apply(t.Context(), netns, plan)
			var refused *interception.ApplyError
			switch {
			case errors.Is(err, interception.ErrUnsupported) && errors.As(err, &refused) && refused.At == "a.link":
				t.Logf("not tested further, as this kernel cannot do it: %v", err)
			case err != nil:
				t.Fatal(err)
			default:
				ns.hasLink(t, netns, plan)
				if err := dp.Remove(t.Context(), ns.Netns, "mesh-test"); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(before, ns.everything(t)+proxy.everything(t)); diff != "" {
				t.Errorf("something is left (-before +after):\n%s", diff)
			}
		})
	}
}

// hasLink checks that mesh0 is as the plan wants it, and stays so when the plan is applied again.
func (p *pod) hasLink(t *testing.T, netns *interception.Netns, plan *interception.Plan) {
	t.Helper()
	if link := p.ip(t, "link", "show", "mesh0", "up"); !strings.Contains(link, "alias meshcni mesh-test") {
		t.Errorf("the link is not up or has no alias: %s", link)
	}
	index := p.ip(t, "-o", "link", "show", "mesh0")
	if err := dataplane(t).Apply(t.Context(), netns, plan); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(index, p.ip(t, "-o", "link", "show", "mesh0")); diff != "" {
		t.Errorf("the second time changed the link (-once +twice):\n%s", diff)
	}
	state, err := dataplane(t).Observe(t.Context(), netns, plan.Owner)
	if err != nil {
		t.Fatal(err)
	}
	if drifts := interception.Diff(plan, state); drifts != nil {
		t.Error(drifts)
	}
}

// TestLinkIntoNowhere refers to a namespace that the caller has not labelled: nothing is written.
func TestLinkIntoNowhere(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	before := ns.everything(t)
	err := dataplane(t).Apply(t.Context(), ns.Netns, build(t, "mesh-test", func(b *interception.Builder) {
		b.Link(interception.Link{ID: "a.link", Name: "mesh0", Veth: &interception.Veth{Peer: "mesh1", Namespace: "proxy"}, Why: "a link"})
	}))
	var refused *interception.ApplyError
	if !errors.As(err, &refused) || refused.At != "a.link" || !errors.Is(err, interception.ErrNotNetns) || !strings.Contains(err.Error(), `"proxy"`) {
		t.Errorf("got %v, want ErrNotNetns about the link", err)
	}
	if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
		t.Errorf("something was written (-before +after):\n%s", diff)
	}
}

// TestLinkOwnership has links of kinds that no plan has, with and without the owner's alias.
func TestLinkOwnership(t *testing.T) {
	t.Parallel()
	ns, dp := newPod(t), dataplane(t)
	plan := build(t, "mesh-test", func(b *interception.Builder) {
		b.Link(interception.Link{ID: "a.link", Name: "mesh0", Why: "a link"})
	})
	for _, alias := range []string{"", "meshcni mesh-other", "meshcni mesh-test"} {
		if alias == "" {
			ns.ip(t, "link", "add", "mesh0", "type", "bridge")
		} else {
			ns.ip(t, "link", "set", "mesh0", "alias", alias)
		}
		before := ns.everything(t)
		var refused *interception.ApplyError
		if err := dp.Apply(t.Context(), ns.Netns, plan); !errors.As(err, &refused) || refused.At != "a.link" || !errors.Is(err, unix.EEXIST) {
			t.Errorf("alias %q: got %v, want EEXIST about the link", alias, err)
		}
		if diff := cmp.Diff(before, ns.everything(t)); diff != "" {
			t.Errorf("alias %q: something was written (-before +after):\n%s", alias, diff)
		}
	}
	ns.ip(t, "link", "add", "mesh1", "type", "bridge")
	if err := dp.Remove(t.Context(), ns.Netns, "mesh-test"); err != nil {
		t.Fatal(err)
	}
	if left := ns.ip(t, "-br", "link"); strings.Contains(left, "mesh0") || !strings.Contains(left, "mesh1") {
		t.Errorf("want the owner's link gone and the other there: %s", left)
	}
}

func TestSupports(t *testing.T) {
	t.Parallel()
	dp := dataplane(t)
	if err := dp.Supports(network(t, 133)); err != nil {
		t.Error(err)
	}
	plan := &interception.Plan{Owner: "mesh-test", Objects: []interception.Object{
		interception.Table{Kind: interception.Mangle, Chains: []interception.Chain{{Name: "out", Rules: []interception.Rule{{ID: "a.rule", Why: "why"}}}}},
	}}
	if err := dp.Supports(plan); !errors.Is(err, interception.ErrUnsupported) || !strings.Contains(err.Error(), "a.rule") {
		t.Errorf("got %v, want ErrUnsupported about the rule without an action", err)
	}
}
