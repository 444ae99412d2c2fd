// SPDX-License-Identifier: Apache-2.0

package interception_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/golden"
)

// everything has all kinds of objects, actions and conditions, plain and negated.
func everything(b *interception.Builder) {
	why := "a reason"
	b.Link(interception.Link{ID: "link", Name: "tun0", Why: why})
	b.Address(interception.Address{ID: "address", Device: "lo", Prefix: netip.MustParsePrefix("::6/128"), Why: why})
	b.Sysctl(interception.Sysctl{ID: "sysctl", Key: "ipv4/conf/all/route_localnet", Value: 1, Why: why})
	b.Route(interception.Route{ID: "route", Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "tun0", Why: why})
	b.PolicyRule(interception.PolicyRule{
		ID: "policy", Family: interception.IPv4, Mark: interception.WholeMark(1), Table: 100, Priority: 100, Why: why,
	})
	near := b.Set("near", interception.Prefixes(netip.MustParsePrefix("192.0.2.0/24")), why)
	tcp, v4 := interception.Match{L4: interception.TCP()}, interception.Match{Family: interception.IPv4}
	address := netip.MustParseAddr("10.0.0.1")
	fill(b.Raw("chain"), "raw", tcp, []interception.RawAction{
		interception.Accept{},
		interception.Return{},
		interception.Drop{},
		interception.SetZone{Zone: 1},
		interception.NoTrack{},
		interception.Log{Prefix: "log"},
	})
	mark := interception.WholeMark(1)
	fill(b.Mangle("chain"), "mangle", tcp, []interception.MangleAction{
		interception.Accept{},
		interception.Return{},
		interception.Drop{},
		interception.TProxyTo{Port: 1, Mark: mark},
		interception.SetMark{Mark: mark},
		interception.SaveMark{},
		interception.RestoreMark{},
		interception.SetConnMark{Mark: mark},
		interception.Log{Prefix: "log"},
	})
	nat := b.NAT("chain")
	fill(nat, "nat", tcp, []interception.NATAction{interception.Accept{}, interception.Return{}, interception.RedirectTo{Port: 1}, interception.Log{Prefix: "log"}})
	fill(nat, "nat.v4", v4, []interception.NATAction{interception.DNATTo{Addr: address}, interception.SNATTo{Addr: address}})
	fill(nat, "nat.v4.keep", v4, []interception.NATAction{interception.SNATTo{Keep: true}})
	filter := b.Filter("chain")
	fill(filter, "filter", tcp, []interception.FilterAction{
		interception.Accept{},
		interception.Return{},
		interception.Drop{},
		interception.Reject{},
		interception.Log{Prefix: "log"},
	})
	filter.Call("filter.call", tcp, b.Filter("called"), why)
	out := b.Mangle("out")
	out.Entry(interception.Postrouting, interception.Match{}, why)
	in := b.Mangle("in")
	in.Entry(interception.Input, interception.Match{}, why)
	match(in, out, near)
}

func fill[A interception.Action](c *interception.ChainRef[A], table interception.RuleID, match interception.Match, actions []A) {
	for _, action := range actions {
		name := strings.ToLower(reflect.TypeOf(action).Name())
		c.Do(table+"."+interception.RuleID(name), match, action, "a reason")
	}
}

// match has each condition twice: where In is known, and where Out and owners are.
func match(in, out *interception.ChainRef[interception.MangleAction], set interception.SetRef) {
	lo := interception.Interfaces("lo")
	prefix := interception.Prefixes(netip.MustParsePrefix("10.0.0.0/8"))
	uids, gids := interception.UIDs(1), interception.GIDs(1)
	mark, ports := interception.WholeMark(1), interception.Ports(1)
	tcp, udp, opening := interception.TCP(), interception.UDP(), interception.Opening()
	in.Do("in", interception.Match{In: interception.Is(lo)}, interception.Return{}, "a reason")
	in.Do("in.not", interception.Match{In: interception.Not(lo)}, interception.Return{}, "a reason")
	out.Do("is", interception.Match{
		Family: interception.IPv4, Out: interception.Is(lo), Src: interception.Is(prefix), Dst: interception.Is(prefix),
		SrcSet: interception.Is(set), DstSet: interception.Is(set), L4: tcp.From(ports).To(ports).Flags(opening),
		UID: interception.Is(uids), GID: interception.Is(gids), Mark: interception.Is(mark), ConnMark: interception.Is(mark),
		State: interception.Is(interception.StateNew), Direction: interception.DirectionOriginal,
	}, interception.Return{}, "a reason")
	out.Do("is.not", interception.Match{
		Family: interception.IPv4, Out: interception.Not(lo), Src: interception.Not(prefix), Dst: interception.Not(prefix),
		SrcSet: interception.Not(set), DstSet: interception.Not(set), L4: tcp.NotFrom(ports).NotTo(ports).NotFlags(opening),
		UID: interception.Not(uids), GID: interception.Not(gids), Mark: interception.Not(mark), ConnMark: interception.Not(mark),
		State: interception.Not(interception.StateNew), Direction: interception.DirectionReply,
	}, interception.Return{}, "a reason")
	out.Do("udp", interception.Match{L4: udp}, interception.Return{}, "a reason")
}

// TestBuildTakesEverything builds a plan of the whole model and finds in it every object, every
// action and every field of Match that the package declares. It also reads the plan back from JSON.
func TestBuildTakesEverything(t *testing.T) {
	t.Parallel()
	plan, err := interception.Build("test-mesh", everything)
	if err != nil {
		t.Fatal(err)
	}
	has := golden.Features(plan)
	for _, name := range implementations(t, "object") {
		if !has["object interception."+name] {
			t.Errorf("no object is a %s", name)
		}
	}
	for _, name := range implementations(t, "action") {
		used := false
		for _, table := range interception.TableKinds() {
			used = used || has[table.String()+": interception."+name]
		}
		if want := name != "Opaque"; used != want { // only states contain it
			t.Errorf("a rule's action is a %s: %t, want %t", name, used, want)
		}
	}
	for _, name := range append(fieldNames(), "source port", "destination port", "flags") {
		if !has["mangle: "+name+" negated false"] || !has["mangle: "+name+" negated true"] {
			t.Errorf("no rule has a condition on %s, or none has it negated", name)
		}
	}
	for _, feature := range []string{"mangle: Family", "mangle: Direction", "mangle: protocol tcp", "mangle: protocol udp"} {
		if !has[feature] {
			t.Errorf("no rule has %s", feature)
		}
	}
	text, err := plan.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var again interception.Plan
	if err := again.UnmarshalJSON(text); err != nil || again.String() != plan.String() {
		t.Errorf("from JSON comes another plan, error %v:\n%s\nwant\n%s", err, &again, plan)
	}
}

// fieldNames returns the fields of Match that are conditions. L4 has its own.
func fieldNames() []string {
	var names []string
	for field := range reflect.TypeFor[interception.Match]().Fields() {
		if field.Name != "L4" && field.Name != "Family" && field.Name != "Direction" {
			names = append(names, field.Name)
		}
	}
	return names
}

// implementations returns the package's types with an unexported method, which seals an interface.
func implementations(t *testing.T, method string) []string {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Recv == nil || function.Name.Name != method {
				continue
			}
			if receiver, ok := function.Recv.List[0].Type.(*ast.Ident); ok {
				names = append(names, receiver.Name)
			}
		}
	}
	if len(names) == 0 {
		t.Fatalf("no type has a method %s", method)
	}
	return names
}
