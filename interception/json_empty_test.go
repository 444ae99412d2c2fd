// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// memberNames returns the names in JSON of a struct's fields of type wireText.
func memberNames(of reflect.Type) []string {
	var names []string
	for i := range of.NumField() {
		if field := of.Field(i); field.Type == reflect.TypeFor[wireText]() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// TestUnmarshalRefusesEmptyMembers: a list that turned out empty must not become "everything".
func TestUnmarshalRefusesEmptyMembers(t *testing.T) {
	t.Parallel()
	matches := memberNames(reflect.TypeFor[wireMatch]())
	selectors := memberNames(reflect.TypeFor[wirePolicyRule]())
	if len(matches) != 17 || len(selectors) != 4 {
		t.Fatalf("a match has the members %v, a policy rule %v", matches, selectors)
	}
	for object, names := range map[string][]string{
		`{"table":{"kind":"nat","entries":[{"id":"e","hook":"output","chain":"a","why":"why","match":{"protocol":"tcp",MEMBER}}],
			"chains":[{"name":"a"}]}}`: matches,
		`{"table":{"kind":"nat","chains":[{"name":"a","rules":[
			{"id":"r","why":"why","match":{"uid":"7",MEMBER},"action":{"do":"return"}}]}]}}`: matches,
		`{"policyRule":{"id":"p","family":"v4","mark":"0x1",MEMBER,"table":7,"priority":7,"why":"why"}}`: selectors,
	} {
		for _, name := range names {
			for value, says := range map[string]string{`""`: name + " is empty", `null`: name + " is empty", `"!"`: name + ` has nothing after the "!"`} {
				text := `{"owner":"test-mesh","objects":[` + strings.Replace(object, "MEMBER", `"`+name+`":`+value, 1) + `]}`
				var plan Plan
				if err := json.Unmarshal([]byte(text), &plan); err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("Unmarshal(%s) = %v, want an error with %s", text, err, says)
				}
			}
		}
	}
}

func TestUnmarshalNamesTheMember(t *testing.T) {
	t.Parallel()
	text := `{"owner":"test-mesh","objects":[{"table":{"kind":"nat","chains":[{"name":"a","rules":[
		{"id":"r","why":"why","match":{"protocol":"tpc","dport":"!x","uid":"root"},"action":{"do":"return"}}]}]}}]}`
	var plan Plan
	err := json.Unmarshal([]byte(text), &plan)
	for _, want := range []string{`protocol "tpc": `, `dport "!x": `, `uid "root": `} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Unmarshal = %v, want an error with %s", err, want)
		}
	}
}

func TestUnmarshalRefusesTwoKinds(t *testing.T) {
	t.Parallel()
	text := `{"owner":"test-mesh","objects":[{"sysctl":{"id":"s","key":"ipv4/ip_forward","value":1,"why":"why"},"table":{"kind":"nat"}}]}`
	var plan Plan
	if err := json.Unmarshal([]byte(text), &plan); err == nil || !strings.Contains(err.Error(), "two kinds, sysctl and table") {
		t.Errorf("Unmarshal = %v, want an error about two kinds", err)
	}
}

// TestMarshalRefusesEmptyConditions: what is written must not read as another, wider plan.
func TestMarshalRefusesEmptyConditions(t *testing.T) {
	t.Parallel()
	for name, match := range map[string]Match{
		"dport":  {L4: TCP().To(Ports())},
		"sport":  {L4: TCP().NotFrom(Ports())},
		"in":     {In: Is(Interfaces())},
		"out":    {Out: Not(Interfaces())},
		"src":    {Src: Is(Prefixes())},
		"dst":    {Dst: Not(Prefixes())},
		"uid":    {UID: Is(UIDs())},
		"gid":    {GID: Not(GIDs())},
		"state":  {State: Is(ConnState(0))},
		"srcSet": {SrcSet: Is(SetRef{})},
		"mark":   {Mark: Is(MarkBits{})},
		"flags":  {L4: TCP().Flags(TCPFlags{})},
	} {
		rule := Rule{ID: "r", Match: match, Action: Return{}, Why: "why"}
		plan := &Plan{Owner: "test-mesh", Objects: []Object{Table{Kind: NAT, Chains: []Chain{{Name: "a", Rules: []Rule{rule}}}}}}
		text, err := plan.MarshalJSON()
		if err == nil { // some empty sets have a text
			var again Plan
			err = json.Unmarshal(text, &again)
		} else if !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), `rule "r": `+name+" ") {
			t.Errorf("%s: MarshalJSON = %v, want ErrPlan with the rule and the member", name, err)
		}
		if err == nil {
			t.Errorf("%s: a plan with an empty condition reads back from %s", name, text)
		}
	}
}

func TestPolicyRuleSelectorsReadBack(t *testing.T) {
	t.Parallel()
	rule := PolicyRule{
		ID: "p", Family: IPv4, Source: netip.MustParsePrefix("10.0.0.0/8"), Destination: netip.MustParsePrefix("192.0.2.0/24"),
		In: "eth0", Mark: MarkBits{1, 1}, Table: 7, Priority: 7, Why: "why", From: []Source{{SourceField, "a", "b"}},
	}
	text, err := (&Plan{Owner: "test-mesh", Objects: []Object{rule}}).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var plan Plan
	if err := json.Unmarshal(text, &plan); err != nil || !reflect.DeepEqual(plan.Objects, []Object{rule}) {
		t.Errorf("Unmarshal(%s) = %+v, %v", text, plan, err)
	}
}
