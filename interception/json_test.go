// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// everything returns a plan with all kinds of objects, conditions (also negated) and actions.
func everything(t testing.TB) *Plan {
	t.Helper()
	v4, v6 := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")
	source := Source{SourceAnnotation, "key", "value"}
	plan, err := Build("test-mesh", func(b *Builder) {
		b.Link(Link{ID: "link.dummy", Name: "dummy0", Why: "a dummy", From: []Source{source}})
		tunnel := &Geneve{VNI: 1000, Remote: netip.MustParseAddr("192.0.2.1"), Port: 6081}
		b.Link(Link{ID: "link.geneve", Name: "tun0", Geneve: tunnel, Why: "a tunnel"})
		far := &VXLAN{VNI: 1001, Remote: netip.MustParseAddr("fd00::1"), Port: 4789}
		b.Link(Link{ID: "link.vxlan", Name: "tun1", VXLAN: far, MTU: 1430, HardwareAddr: "02:00:00:ab:00:01", Why: "a tunnel"})
		b.Link(Link{ID: "link.veth", Name: "in0", Veth: &Veth{Peer: "in1", Namespace: "proxy"}, Why: "a pair"})
		b.Address(Address{ID: "address", Device: "lo", Prefix: netip.MustParsePrefix("::6/128"), Why: "an address", From: []Source{source}})
		b.Sysctl(Sysctl{ID: "sysctl", Key: "ipv4/conf/eth0.1/route_localnet", Value: 1, Why: "a parameter"})
		b.Route(Route{ID: "route.local", Type: RouteLocal, Destination: netip.MustParsePrefix("0.0.0.0/0"), Device: "lo", Table: 133, Why: "a route"})
		b.Route(Route{ID: "route.via", Destination: v6, Device: "eth0", Gateway: netip.MustParseAddr("fd00::1"), Why: "a route"})
		b.Route(Route{
			ID: "route.onlink", Destination: v6, Device: "eth0", Gateway: netip.MustParseAddr("fd00::1"), OnLink: true,
			Source: netip.MustParseAddr("fd00::2"), Metric: 7, Why: "a route",
		})
		for _, kind := range []RouteType{RouteUnreachable, RouteBlackhole, RouteThrow} {
			b.Route(Route{ID: RuleID("route." + kind.String()), Type: kind, Destination: v6, Table: 133, Why: "a route"})
		}
		b.PolicyRule(PolicyRule{ID: "rule", Family: IPv6, Mark: MarkBits{1, 3}, Table: 133, Priority: 7, Why: "a policy rule"})
		b.PolicyRule(PolicyRule{
			ID: "rule.selected", Family: IPv6, Source: v6, Destination: netip.MustParsePrefix("2001:db8::/32"), In: "eth0", Priority: 8, Why: "a policy rule",
		})
		b.PolicyRule(PolicyRule{ID: "rule.any", Family: IPv4, Any: true, Table: 100, Priority: 103, Why: "a policy rule"})
		b.PolicyRule(PolicyRule{ID: "rule.goto", Family: IPv4, Mark: MarkBits{1, 3}, Goto: 32766, Priority: 100, Why: "a policy rule"})
		fixed := b.Set("fixed", Prefixes(v4), "a fixed set", source)
		live := b.LiveSet("live", IPv6, "a live set")
		b.LiveAddresses("addresses", IPv4, "a live set of addresses")

		raw := b.Raw("raw")
		raw.Entry(Prerouting, Match{Family: IPv6}, "enter raw")
		raw.Do("raw.in", Match{In: Is(Interfaces("lo", "eth*"))}, NoTrack{}, "why", source, source)
		raw.Do("raw.zone", Match{In: Not(Interfaces("lo")), L4: UDP().From(Ports(53)).NotTo(PortRange(1, 5))}, SetZone{Zone: 7}, "why")
		raw.Do("raw.zone.original", Match{}, SetZone{7, DirectionOriginal}, "why")
		raw.Do("raw.log", Match{SrcSet: Is(live)}, Log{"seen"}, "why")

		mangle := b.Mangle("mangle")
		mangle.Entry(Prerouting, Match{}, "enter mangle")
		mangle.Do("tproxy", Match{L4: TCP().NotFrom(Ports(1)).To(Ports(2, 4))}, TProxyTo{15006, WholeMark(1337)}, "why")
		mangle.Do("set", Match{Mark: Is(WholeMark(1))}, SetMark{MarkBits{1, 0xff}}, "why")
		mangle.Do("save", Match{ConnMark: Not(MarkBits{2, 2})}, SaveMark{}, "why")
		mangle.Do("restore", Match{State: Is(StateNew | StateUntracked)}, RestoreMark{0xff}, "why")
		mangle.Do("original", Match{Direction: DirectionOriginal}, RestoreMark{}, "why")
		mangle.Do("reply", Match{Direction: DirectionReply}, RestoreMark{}, "why")
		mangle.Do("connmark", Match{State: Not(StateInvalid), L4: TCP().Flags(Opening())}, SetConnMark{WholeMark(3)}, "why")
		mangle.Do("drop", Match{L4: TCP().NotFlags(TCPFlags{Mask: FlagRST})}, Drop{}, "why")

		nat, source4 := b.NAT("nat"), b.NAT("source")
		nat.Entry(Output, Match{L4: TCP()}, "enter nat")
		nat.Do("redirect", Match{Out: Is(Interfaces("lo")), L4: TCP(), UID: Is(UIDs(0, 1, 5)), GID: Not(GIDs(9))}, RedirectTo{15001}, "why")
		nat.Do("dnat", Match{Src: Is(Prefixes(v4)), L4: TCP()}, DNATTo{netip.MustParseAddr("10.0.0.1"), 80}, "why")
		nat.Do("dst", Match{Dst: Not(Prefixes(v6)), UID: Not(UIDs(3)), GID: Is(GIDs(4))}, Return{}, "why")
		nat.Do("set-dst", Match{DstSet: Not(fixed), SrcSet: Not(fixed)}, Accept{}, "why")
		source4.Entry(Postrouting, Match{}, "enter source")
		source4.Do("snat", Match{Src: Not(Prefixes(v4)), Dst: Is(Prefixes(v4))}, SNATTo{Addr: netip.MustParseAddr("10.0.0.2")}, "why")
		source4.Do("keep", Match{Family: IPv6}, SNATTo{Keep: true}, "why")

		filter, tail := b.Filter("filter"), b.Filter("tail")
		filter.Entry(Forward, Match{}, "enter filter")
		filter.Call("call", Match{Out: Not(Interfaces("eth0")), Mark: Not(WholeMark(9)), ConnMark: Is(WholeMark(8))}, tail, "why")
		filter.Do("dst-set", Match{DstSet: Is(fixed)}, Return{}, "why")
		tail.Do("reject", Match{}, Reject{}, "why")
	})
	if err != nil {
		t.Fatal(err)
	}
	table, ok := plan.Objects[len(plan.Objects)-1].(Table)
	if !ok {
		t.Fatal("the last object is no table")
	}
	table.Entries[0].Offset = -5
	return plan
}

func TestJSONRoundTrip(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]*Plan{
		"everything": everything(t),
		"empty":      {Owner: "test-mesh"},
	} {
		text, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		var again Plan
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if again.String() != plan.String() || again.Fingerprint() != plan.Fingerprint() {
			t.Errorf("%s: reads back as\n%s\nwant\n%s", name, &again, plan)
		}
	}
}

// TestJSONIsThatOfTheFile compares the output byte for byte with testdata/json/plan.json (without
// the file's indentation). The form must not change: journals hold plans that other versions of a
// program wrote.
func TestJSONIsThatOfTheFile(t *testing.T) {
	t.Parallel()
	plan := everything(t)
	for i, object := range plan.Objects {
		if address, ok := object.(Address); ok {
			address.Why, address.From = "<\"\\\x00\u2028&>", []Source{{SourceEnv, "ключ", "\n"}}
			plan.Objects[i] = address
		}
	}
	got, err := plan.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join("testdata", "json", "plan.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := json.Compact(&want, file); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("(-file +now):\n%s", diff)
	}
}

// TestEverythingIsThere checks that the plan above has each action, and each condition twice.
func TestEverythingIsThere(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(everything(t))
	if err != nil {
		t.Fatal(err)
	}
	match := reflect.TypeFor[wireMatch]()
	for i := range match.NumField() {
		name, _, _ := strings.Cut(match.Field(i).Tag.Get("json"), ",")
		is, not := `"`+name+`":"`, `"`+name+`":"!`
		if strings.Count(string(text), is) == strings.Count(string(text), not) {
			t.Errorf("no rule has %s as Is", name)
		}
		if !strings.Contains(string(text), not) && !slices.Contains([]string{"family", "protocol", "direction"}, name) {
			t.Errorf("no rule has %s as Not", name)
		}
	}
	for _, do := range []string{
		wordAccept, wordReturn, wordDrop, wordReject, wordRedirect, wordDNAT, wordSNAT, wordTProxy, wordSetMark, wordSaveMark,
		wordRestoreMark, wordSetConnMark, wordSetZone, wordNoTrack, wordLog, wordJump,
	} {
		if !strings.Contains(string(text), `"do":"`+do+`"`) {
			t.Errorf("no rule has the action %s", do)
		}
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	t.Parallel()
	rule := func(match, action string) string {
		return `{"owner":"test-mesh","objects":[{"table":{"kind":"mangle","chains":[{"name":"a","rules":[
			{"id":"r","why":"why","match":` + match + `,"action":` + action + `}]}]}}]}`
	}
	for name, text := range map[string]string{
		"unknown field":          `{"owner":"test-mesh","objects":[],"more":1}`,
		"object of no kind":      `{"owner":"test-mesh","objects":[{}]}`,
		"plan that is invalid":   `{"owner":"alone","objects":[]}`,
		"unknown table":          `{"owner":"test-mesh","objects":[{"table":{"kind":"security"}}]}`,
		"unknown action":         rule(`{}`, `{"do":"explode"}`),
		"parameter too many":     rule(`{}`, `{"do":"return","port":1}`),
		"action of another kind": rule(`{}`, `{"do":"redirect","port":1}`),
		"zone of no direction":   rule(`{}`, `{"do":"setZone","zone":1,"direction":"up"}`),
		"direction of no zone":   rule(`{}`, `{"do":"return","direction":"reply"}`),
		"unknown condition":      rule(`{"color":"red"}`, `{"do":"return"}`),
		"set that is not there":  rule(`{"dstSet":"@none"}`, `{"do":"return"}`),
		"mark that is none":      rule(`{"mark":"x"}`, `{"do":"return"}`),
		"state that is none":     rule(`{"state":"old"}`, `{"do":"return"}`),
		"flags without mask":     rule(`{"protocol":"tcp","flags":"syn"}`, `{"do":"return"}`),
		"range upside down":      rule(`{"protocol":"tcp","dport":"2-1"}`, `{"do":"return"}`),
		"port without protocol":  rule(`{"dport":"2"}`, `{"do":"return"}`),
		"port too large":         rule(`{"protocol":"tcp","dport":"65536"}`, `{"do":"return"}`),
		"negated nothing":        rule(`{"uid":"!"}`, `{"do":"return"}`),
	} {
		plan := Plan{Owner: "before-it"}
		if err := json.Unmarshal([]byte(text), &plan); err == nil || plan.Owner != "before-it" {
			t.Errorf("%s: Unmarshal = %v, and the plan is now of %s", name, err, plan.Owner)
		}
	}
}

func FuzzPlanJSON(f *testing.F) {
	text, err := json.Marshal(everything(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"owner":"test-mesh","objects":[{"set":{"name":"a","family":"v4","members":["10.0.0.0/8"],"why":"w"}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var plan, again Plan
		if json.Unmarshal(text, &plan) != nil {
			return
		}
		text, err := json.Marshal(&plan)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &again); err != nil || again.String() != plan.String() {
			t.Fatalf("%v: reads back as\n%s\nwant\n%s", err, &again, &plan)
		}
	})
}

// TestJSONForm checks that the text of a plan is what encoding/json writes of the types that read
// it: the same members in the same order, and the same escapes. Every member of a table is set
// somewhere, so that none can be left out on both sides.
func TestJSONForm(t *testing.T) {
	t.Parallel()
	plan := everything(t)
	for object := range plan.Tables() {
		for i := range object.Chains {
			for j := range object.Chains[i].Rules {
				object.Chains[i].Rules[j].From = []Source{{SourceAnnotation, "a/b", "<\"\\>& \x00\x7f\u2028ä"}}
			}
		}
	}
	written, err := plan.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var wire wirePlan
	decoder := json.NewDecoder(bytes.NewReader(written))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wire); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(wire)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(written)); diff != "" {
		t.Errorf("as encoding/json writes it (-want +got):\n%s", diff)
	}
	set := map[string]bool{}
	for _, object := range wire.Objects {
		if object.Table != nil {
			noteMembers(reflect.ValueOf(*object.Table), set)
		}
	}
	for _, member := range slices.Sorted(maps.Keys(set)) {
		if !set[member] {
			t.Errorf("%s is set nowhere in what was read: the writer or the test's plan lacks it", member)
		}
	}
	if len(set) < 40 {
		t.Errorf("a table has the members %v, want more", slices.Sorted(maps.Keys(set)))
	}
}

// noteMembers notes the members of all types of this package in a value, and which of them are set.
func noteMembers(v reflect.Value, set map[string]bool) {
	switch {
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			noteMembers(v.Index(i), set)
		}
	case v.Kind() == reflect.Struct && v.Type().PkgPath() == reflect.TypeFor[Plan]().PkgPath():
		for i := range v.NumField() {
			member := v.Type().Name() + "." + v.Type().Field(i).Name
			set[member] = set[member] || !v.Field(i).IsZero()
			noteMembers(v.Field(i), set)
		}
	}
}
