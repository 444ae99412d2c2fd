// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/repair/controller"
)

// named returns the setting of that name.
func named(t *testing.T, name string) Setting {
	t.Helper()
	all := All()
	i := slices.IndexFunc(all, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no setting %s", name)
	}
	return all[i]
}

// TestSelectorsAreChecked has what the node-watcher would end with, and what it takes.
func TestSelectorsAreChecked(t *testing.T) {
	t.Parallel()
	const labels, fields = "repair-label-selectors", "repair-field-selectors"
	for name, wrong := range map[string]map[string]string{
		labels: {
			"a=(": `"a=(" is not part of a label selector: write KEY=VALUE`, "a,,b": "not part", "a b": "not part", "a in b": "not part",
			"a in (b c)": "not part", "!a=b": "not part", ",": "not part", "a=b,": "not part", "a)": "not part", "é": "not the key",
			"-a": "not the key", "/a": "not the key", strings.Repeat("a.", 127) + "a/b": "not the key", "a=-": "not the value",
			"a in (b, -)": "not the value", "a=" + strings.Repeat("b", 64): "not the value", "a>b": "not a number", "a<": "not a number",
		},
		fields: {
			"a=(": `"a" is not a field that pods are selected by: write one of metadata.name, metadata.namespace`, "status.phase": "not part",
			"status.phase=a=b": "not part", `status.phase=\a`: "not part", "status.phase!Failed": "not part", "=": "not a field",
			" status.phase=a": "not a field",
		},
	} {
		for value, want := range wrong {
			wantErrors(t, map[string]string{strings.ToUpper(strings.ReplaceAll(name, "-", "_")): value}, nil, want)
		}
	}
	for name, right := range map[string][]string{
		labels: {"", " ", "a", "!a", "! a", "a=", "a = b", "a==b,c!=d", "a in (b,c), d notin ()", "a in (,b)", "in in (in,notin)", "x/a>1", "a=in", "a.b/c_d"},
		fields: {"", ",", "status.phase!=Failed", "metadata.name==a,,metadata.namespace=b", `metadata.name=a\,b\=c\\`, "spec.nodeName="},
	} {
		for _, value := range right {
			if err := named(t, name).Check(value); err != nil {
				t.Errorf("%s=%q: %v", name, value, err)
			}
		}
	}
}

// TestSelectorsAreWhatTheNodeWatcherParses compares the check with Kubernetes' parser, of random
// texts that are nearly selectors.
func TestSelectorsAreWhatTheNodeWatcherParses(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "b-c", "in", "notin", "=", "==", "!=", "!", "<", ">", "1", "(", ")", ",", " ", "\t", "x.y/z", "-", "_", "/", ".", `\`}
	withFields := append(slices.Clone(selectable()), pieces...)
	labels, fields := named(t, "repair-label-selectors"), named(t, "repair-field-selectors")
	taken := 0
	for range 5000 {
		byLabel, byField := some(random, pieces), some(random, withFields)
		_, want := controller.ParseSelection(byLabel, "")
		if got := labels.Check(byLabel); (got == nil) != (want == nil) {
			t.Fatalf("label selector %q: %v, and the node-watcher says %v", byLabel, got, want)
		}
		_, wantField := controller.ParseSelection("", byField)
		got := fields.Check(byField)
		// Kubernetes ignores a term without a field and a value, such as "=".
		if got == nil && wantField != nil || got != nil && wantField == nil && !strings.HasPrefix(got.Error(), `"" is not a field`) {
			t.Fatalf("field selector %q: %v, and the node-watcher says %v", byField, got, wantField)
		}
		if want == nil || wantField == nil {
			taken++
		}
	}
	if taken < 500 {
		t.Errorf("only %d of the texts were selectors", taken)
	}
}

func some(random *rand.Rand, pieces []string) string {
	var text strings.Builder
	for range random.IntN(7) {
		text.WriteString(pieces[random.IntN(len(pieces))])
	}
	return text.String()
}
