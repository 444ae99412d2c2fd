// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
)

func TestLabelSelectorMatches(t *testing.T) {
	t.Parallel()
	requirement := func(operator Operator, values ...string) LabelSelector {
		return LabelSelector{MatchExpressions: []Requirement{{Key: "a", Operator: operator, Values: values}}}
	}
	for name, test := range map[string]struct {
		selector LabelSelector
		yes, no  []map[string]string
	}{
		"zero":         {LabelSelector{}, []map[string]string{nil, {"a": "1"}}, nil},
		"labels":       {LabelSelector{MatchLabels: map[string]string{"a": "1"}}, []map[string]string{{"a": "1", "b": ""}}, []map[string]string{nil, {"a": "2"}}},
		"empty value":  {LabelSelector{MatchLabels: map[string]string{"a": ""}}, []map[string]string{{"a": ""}}, []map[string]string{nil, {"a": "1"}}},
		"in":           {requirement(In, "1", "2"), []map[string]string{{"a": "1"}, {"a": "2"}}, []map[string]string{nil, {"a": "3"}}},
		"not in":       {requirement(NotIn, "1"), []map[string]string{nil, {"a": "2"}}, []map[string]string{{"a": "1"}}},
		"exists":       {requirement(Exists), []map[string]string{{"a": ""}}, []map[string]string{nil, {"b": "1"}}},
		"not there":    {requirement(DoesNotExist), []map[string]string{nil, {"b": "1"}}, []map[string]string{{"a": ""}}},
		"unknown":      {requirement("Gt", "1"), nil, []map[string]string{nil, {"a": "2"}}},
		"all must fit": {LabelSelector{MatchLabels: map[string]string{"b": "1"}, MatchExpressions: requirement(Exists).MatchExpressions}, []map[string]string{{"a": "", "b": "1"}}, []map[string]string{{"a": ""}, {"b": "1"}}},
	} {
		for _, labels := range test.yes {
			if !test.selector.Matches(labels) {
				t.Errorf("%s does not match %v", name, labels)
			}
		}
		for _, labels := range test.no {
			if test.selector.Matches(labels) {
				t.Errorf("%s matches %v", name, labels)
			}
		}
	}
}

func TestParseSelectors(t *testing.T) {
	t.Parallel()
	got, err := ParseSelectors([]byte(`[
		{"podSelector": {"matchExpressions": [{"key": "istio.io/dataplane-mode", "operator": "In", "values": ["ambient"]}]}},
		{"podSelector": {"matchExpressions": [{"key": "istio.io/dataplane-mode", "operator": "NotIn", "values": ["none"]}]},
		 "namespaceSelector": {"matchExpressions": [{"key": "istio.io/dataplane-mode", "operator": "In", "values": ["ambient"]}]}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(IstioPolicy().Selectors, got); diff != "" {
		t.Errorf("Istio's default in JSON differs from IstioPolicy's (-want +got):\n%s", diff)
	}
}

func TestParseSelectorsRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                      "EOF",
		`{}`:                    `enablement selectors: the value has the type object: write a list, in the form [{"podSelector"`,
		`[5]`:                   "the value has the type number: write an object, in the form",
		`[{"podSelector": []}]`: "podSelector has the type array: write an object",
		`[{"podSelector": {"matchLabels": {"a": 1}}}]`: "matchLabels has the type number: write a text",
		`[] []`:                  "remove what follows",
		`[{"podSelectors": {}}]`: "unknown field",
		`[{"podSelector": {"matchLabels": {"-a": "1"}}}]`:                                                      `label key "-a"`,
		`[{"podSelector": {"matchLabels": {"": "1"}}}]`:                                                        "has no name",
		`[{"podSelector": {"matchLabels": {"Example.com/a": "1"}}}]`:                                           "DNS name",
		`[{"podSelector": {"matchLabels": {"a/b/c": "1"}}}]`:                                                   `label key "a/b/c"`,
		`[{"podSelector": {"matchLabels": {"a..b/c": "1"}}}]`:                                                  "DNS name",
		`[{"podSelector": {"matchLabels": {"a": "-"}}}]`:                                                       `label value "-"`,
		`[{"podSelector": {"matchLabels": {"a": "` + strings.Repeat("x", 64) + `"}}}]`:                         "at most 63",
		`[{"podSelector": {"matchLabels": {"é": "1"}}}]`:                                                       `label key "é"`,
		`[{}, {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]}}]`: `enablement selector 2: namespaceSelector: matchExpressions[0]: operator "in"`,
		`[{"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}]`:                            "In has no values",
		`[{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}]`:       "Exists takes no values",
	} {
		if got, err := ParseSelectors([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || got != nil {
			t.Errorf("%s: %v, %v, want an error with %q", text, got, err, want)
		}
	}
	if _, err := ParseSelectors([]byte(`[{"podSelector": {"matchLabels": {"example.com/A_b.c": "X-1"}}}]`)); err != nil {
		t.Errorf("a valid selector is refused: %v", err)
	}
	policy := Policy{Selectors: []Selector{{}, {Pod: LabelSelector{MatchLabels: map[string]string{"a": "/"}}}}}
	if err := policy.Validate(); err == nil || !strings.Contains(err.Error(), "selector 2") {
		t.Errorf("Validate of a policy with an invalid selector: %v", err)
	}
}

// TestParseSelectorsOfNamespaces reads a selector without a part about pods: it takes all pods of
// the namespaces.
func TestParseSelectorsOfNamespaces(t *testing.T) {
	t.Parallel()
	selectors, err := ParseSelectors([]byte(`[{"namespaceSelector": {"matchLabels": {"istio.io/dataplane-mode": "ambient"}}}]`))
	if err != nil {
		t.Fatal(err)
	}
	pod := Pod{Pod: interception.Pod{Labels: map[string]string{"istio.io/dataplane-mode": "none"}}}
	for mode, want := range map[string]bool{"ambient": true, "other": false} {
		namespace := Namespace{Labels: map[string]string{"istio.io/dataplane-mode": mode}}
		if got := Enrolled(pod, namespace, Policy{Selectors: selectors}); got.Capture != want {
			t.Errorf("in a namespace with %s: %s, want that it is selected: %t", mode, got, want)
		}
	}
}
