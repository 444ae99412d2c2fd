// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// entered returns the chain, with a jump to it from Output.
func entered[A interception.Action](chain *interception.ChainRef[A]) *interception.ChainRef[A] {
	chain.Entry(interception.Output, interception.Match{}, "why")
	return chain
}

// redirect adds a rule that sends TCP to the outbound port.
func redirect(chain *interception.ChainRef[interception.NATAction]) {
	chain.Do("capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "why")
}

// An entry's offset moves it past the hook's other tables, nat and connection tracking. At the same
// priority, the last entry of a plan comes first.
func TestOffsets(t *testing.T) {
	t.Parallel()
	const (
		captured  = "delivered to outbound (proxy) at 127.0.0.1:15001, originally 192.0.2.1:80; capture: why"
		dropped   = "dropped on the way to 192.0.2.1:80; drop: why"
		behindNAT = "dropped on the way to 127.0.0.1:15001; drop: why"
	)
	marked := interception.Match{Mark: interception.Is(whole(1))}
	unredirected := interception.Match{L4: interception.TCP().To(interception.Ports(80))}
	unknown := interception.Match{State: interception.Is(interception.StateInvalid)}
	for name, c := range map[string]struct {
		mangle, filter int32
		match          interception.Match
		want           string
	}{
		"mangle before filter":                {0, 0, marked, behindNAT},
		"mangle after filter":                 {151, 0, marked, captured},
		"mangle with filter":                  {150, 0, marked, captured},
		"mangle just before filter":           {149, 0, marked, behindNAT},
		"filter after nat":                    {0, -99, unredirected, captured},
		"filter before nat":                   {0, -101, unredirected, dropped},
		"filter with nat":                     {0, -100, unredirected, dropped},
		"filter after connection tracking":    {0, -199, unknown, captured},
		"filter before connection tracking":   {0, -201, unknown, dropped},
		"filter before what writes the mark":  {0, -151, marked, captured},
		"both far before connection tracking": {-1000, -1149, marked, dropped},
	} {
		plan := build(t, func(b *interception.Builder) {
			entered(b.Mangle("mark")).Do("mark", interception.Match{}, interception.SetMark{Mark: whole(1)}, "why")
			entered(b.Filter("drop")).Do("drop", c.match, interception.Drop{}, "why")
			redirect(entered(b.NAT("nat")))
		})
		for i, object := range plan.Objects {
			table, _ := object.(interception.Table)
			offsets := map[interception.TableKind]int32{interception.Mangle: c.mangle, interception.Filter: c.filter}
			table.Entries[0].Offset = offsets[table.Kind]
			plan.Objects[i] = table
		}
		if got := traced(t, pod(plan), connect(application, "192.0.2.1:80")).String(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestChainsAndVerdicts(t *testing.T) {
	t.Parallel()
	all := interception.Match{}
	const (
		captured = "delivered to outbound (proxy) at 127.0.0.1:15001, originally 192.0.2.1:80; capture: why"
		sent     = "sent by eth0 to 192.0.2.1:80; "
		dropped  = "dropped on the way to 192.0.2.1:80; drop: why"
	)
	for name, c := range map[string]struct {
		fill func(*interception.Builder)
		want string
	}{
		"no rule": {func(*interception.Builder) {}, sent + "no rule decided"},
		"a chain that no hook leads to": {func(b *interception.Builder) {
			redirect(b.NAT("chain"))
		}, sent + "no rule decided"},
		"a chain's end returns, and the end of the entries is acceptance": {func(b *interception.Builder) {
			b.NAT("chain").Entry(interception.Output, all, "why")
		}, sent + "no rule decided"},
		"return ends the chain": {func(b *interception.Builder) {
			chain := entered(b.NAT("chain"))
			chain.Do("return", all, interception.Return{}, "why")
			redirect(chain)
		}, sent + "return: why"},
		"return goes on with the next entry": {func(b *interception.Builder) {
			first, second := entered(b.NAT("first")), entered(b.NAT("second"))
			first.Do("return", all, interception.Return{}, "why")
			redirect(second)
		}, captured},
		"accept leaves out the next entry": {func(b *interception.Builder) {
			first, second := entered(b.NAT("first")), entered(b.NAT("second"))
			first.Do("accept", all, interception.Accept{}, "why")
			redirect(second)
		}, sent + "accept: why"},
		"a called chain's return goes on after the jump": {func(b *interception.Builder) {
			chain, called := entered(b.NAT("chain")), b.NAT("called")
			chain.Call("call", all, called, "why")
			redirect(chain)
			called.Do("return", all, interception.Return{}, "why")
			called.Do("never", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15006}, "why")
		}, captured},
		"a called chain's end goes on after the jump": {func(b *interception.Builder) {
			chain, called := entered(b.NAT("chain")), b.NAT("called")
			chain.Call("call", all, called, "why")
			redirect(chain)
		}, captured},
		"a jump that does not match is not taken": {func(b *interception.Builder) {
			chain, called := entered(b.NAT("chain")), b.NAT("called")
			chain.Call("call", interception.Match{L4: interception.UDP()}, called, "why")
			redirect(chain)
			called.Do("accept", all, interception.Accept{}, "why")
		}, captured},
		"a called chain's accept ends the table": {func(b *interception.Builder) {
			chain, called := entered(b.NAT("chain")), b.NAT("called")
			chain.Call("call", all, called, "why")
			redirect(chain)
			called.Do("accept", all, interception.Accept{}, "why")
		}, sent + "accept: why"},
		"redirect ends the chain": {func(b *interception.Builder) {
			chain := entered(b.NAT("chain"))
			redirect(chain)
			chain.Do("second", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15006}, "why")
		}, captured},
		"accept in one table leaves the next table its say": {func(b *interception.Builder) {
			raw, nat := entered(b.Raw("raw")), entered(b.NAT("nat"))
			raw.Do("accept", all, interception.Accept{}, "why")
			redirect(nat)
		}, captured},
		"drop in raw is final": {func(b *interception.Builder) {
			raw, nat := entered(b.Raw("raw")), entered(b.NAT("nat"))
			raw.Do("drop", all, interception.Drop{}, "why")
			redirect(nat)
		}, dropped},
		"drop after a jump is final": {func(b *interception.Builder) {
			chain, called := b.Mangle("chain"), b.Mangle("called")
			chain.Entry(interception.Output, all, "why")
			chain.Call("call", all, called, "why")
			called.Do("drop", all, interception.Drop{}, "why")
		}, dropped},
		"drop in postrouting": {func(b *interception.Builder) {
			chain := b.Mangle("chain")
			chain.Entry(interception.Postrouting, all, "why")
			chain.Do("drop", all, interception.Drop{}, "why")
		}, dropped},
		"filter sees what nat made of it": {func(b *interception.Builder) {
			nat, filter := entered(b.NAT("nat")), b.Filter("filter")
			redirect(nat)
			filter.Entry(interception.Output, interception.Match{L4: interception.TCP().To(interception.Ports(80))}, "why")
			filter.Do("drop", all, interception.Drop{}, "why")
		}, captured},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, pod(build(t, c.fill)), connect(application, "192.0.2.1:80"), c.want)
		})
	}
}

// Every hook can drop the packets that pass it, and has no effect on others.
func TestDropInEveryHook(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		packet trace.Packet
		hooks  []interception.Hook
	}{
		{connect(application, "192.0.2.1:80"), []interception.Hook{interception.Output, interception.Postrouting}},
		{connect(application, "127.0.0.1:8080"), []interception.Hook{interception.Output, interception.Postrouting, interception.Prerouting, interception.Input}},
		{arriving("10.244.0.9:40000", "10.244.0.2:8080"), []interception.Hook{interception.Prerouting, interception.Input}},
		{arriving("10.244.0.9:40000", "10.50.0.1:8080"), []interception.Hook{interception.Prerouting}},
	} {
		passed := map[interception.Hook]bool{}
		for _, hook := range c.hooks {
			passed[hook] = true
		}
		for _, hook := range interception.Hooks() {
			outcome := traced(t, pod(build(t, func(b *interception.Builder) {
				chain := b.Mangle("chain")
				chain.Entry(hook, interception.Match{}, "why")
				chain.Do("drop", interception.Match{}, interception.Drop{}, "why")
			})), c.packet)
			if dropped := outcome.Verdict == trace.Dropped; dropped != passed[hook] {
				t.Errorf("%s: dropped in %s: %t, want %t", c.packet, hook, dropped, passed[hook])
			}
		}
	}
}

// A hook evaluates the tables by priority: nat before filter where destinations change, after it
// where sources do.
func TestOrderOfTables(t *testing.T) {
	t.Parallel()
	world := pod(build(t, func(b *interception.Builder) {
		for _, hook := range interception.Filter.Hooks() {
			b.Filter(interception.ChainName("f-"+hook.String())).Entry(hook, interception.Match{}, "why")
		}
		for _, hook := range interception.NAT.Hooks() {
			b.NAT(interception.ChainName("n-"+hook.String())).Entry(hook, interception.Match{}, "why")
		}
		for _, hook := range interception.Mangle.Hooks() {
			b.Mangle(interception.ChainName("m-"+hook.String())).Entry(hook, interception.Match{}, "why")
		}
		for _, hook := range interception.Raw.Hooks() {
			b.Raw(interception.ChainName("r-"+hook.String())).Entry(hook, interception.Match{}, "why")
		}
	}))
	expectPath(t, traced(t, world, connect(application, "192.0.2.1:80")),
		"raw.output.r-output", "mangle.output.m-output", "nat.output.n-output", "filter.output.f-output",
		"mangle.postrouting.m-postrouting", "nat.postrouting.n-postrouting")
	expectPath(t, traced(t, world, arriving("10.244.0.9:40000", "10.244.0.2:8080")),
		"raw.prerouting.r-prerouting", "mangle.prerouting.m-prerouting", "nat.prerouting.n-prerouting",
		"mangle.input.m-input", "filter.input.f-input", "nat.input.n-input")
}

func TestSeveralOwners(t *testing.T) {
	t.Parallel()
	redirects := func(owner interception.Owner, port interception.Port) *interception.Plan {
		return buildFor(t, owner, func(b *interception.Builder) {
			chain := entered(b.NAT("chain"))
			chain.Do("capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: port}, "by "+string(owner))
		})
	}
	ends := func(action interception.FilterAction) *interception.Plan {
		return buildFor(t, "other-owner", func(b *interception.Builder) {
			if nat, ok := action.(interception.NATAction); ok {
				chain := b.NAT("nat")
				chain.Entry(interception.Output, interception.Match{}, "why")
				chain.Do("nat", interception.Match{}, nat, "by another owner")
			}
			chain := b.Filter("filter")
			chain.Entry(interception.Output, interception.Match{}, "why")
			chain.Do("filter", interception.Match{}, action, "by another owner")
		})
	}
	to := connect(application, "192.0.2.1:80")
	const first = "delivered to outbound (proxy) at 127.0.0.1:15001, originally 192.0.2.1:80; capture: by first-owner"
	expect(t, pod(redirects("first-owner", 15001), redirects("other-owner", 15006)), to, first)
	expect(t, pod(ends(interception.Accept{}), redirects("first-owner", 15001)), to, first)
	expect(t, pod(ends(interception.Return{}), redirects("first-owner", 15001)), to, first)
	expect(t, pod(redirects("first-owner", 15001), ends(interception.Accept{})), to, first)
	expect(t, pod(redirects("first-owner", 15001), ends(interception.Drop{})), to, "dropped on the way to 127.0.0.1:15001; filter: by another owner")
	expectPath(t, traced(t, pod(redirects("first-owner", 15001), redirects("other-owner", 15006)), to), "nat.output.chain", "capture")
}

// The kernel drops a packet that it cannot redirect because the link has no address of the family
// or, for IPv6, of the class.
func TestRedirectWithoutAddress(t *testing.T) {
	t.Parallel()
	v4only := trace.Sidecar(build(t, capture), trace.SidecarOptions{Addresses: addresses("10.244.0.2/24")})
	expect(t, v4only, arriving("[fd00:10:244::9]:40000", "[fd00:10:244::2]:80"), "dropped on the way to [fd00:10:244::2]:80; in.capture: inbound to the proxy")
	for _, dst := range []string{"[::6]:80", "[fe80::2]:80", "[fec0::2]:80"} {
		expect(t, pod(build(t, capture)), arriving("[fd00:10:244::9]:40000", dst), "dropped on the way to "+dst+"; in.capture: inbound to the proxy")
	}
}

// The addresses are those that Linux 6.18 redirected to on a link with these addresses.
func TestRedirectAddress(t *testing.T) {
	t.Parallel()
	world := trace.Sidecar(build(t, capture), trace.SidecarOptions{
		Addresses: addresses("10.244.0.2/24", "10.9.0.5/24", "10.244.0.3/24", "fd00:10:244::3/64", "fd00:10:244::2/64", "::7/128", "fec0::2/64", "fe80::2/64"),
	})
	for _, c := range []struct{ src, dst, want string }{
		{"10.244.0.1:40000", "10.244.0.3:90", "10.244.0.2:15006"},
		{"10.244.0.1:40000", "10.9.0.5:90", "10.244.0.2:15006"},
		{"[fd00:10:244::1]:40000", "[fd00:10:244::2]:90", "[fd00:10:244::3]:15006"},
		{"[fe80::1]:40000", "[fe80::2]:90", "[fe80::2]:15006"},
		{"[fd00::1]:40000", "[fec0::9]:90", "[fec0::2]:15006"},
		{"[fd00::1]:40000", "[::6]:90", "[::7]:15006"},
	} {
		if got := traced(t, world, arriving(c.src, c.dst)).Header.Dst.String(); got != c.want {
			t.Errorf("%s: redirected to %s, want %s", c.dst, got, c.want)
		}
	}
}
