// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestSelection has a DaemonSet that exists.
func TestSelection(t *testing.T) {
	t.Parallel()
	affinity := func(terms string) string {
		return `{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[` + terms + `]}}}}`
	}
	expression := func(key, operator, values string) string {
		return affinity(fmt.Sprintf(`{"matchExpressions":[{"key":%q,"operator":%q,"values":[%s]}]}`, key, operator, values))
	}
	const node = `{"kind":"Node","metadata":{"name":"node-1","labels":{"os":"linux","cores":"8"}}}`
	for name, test := range map[string]struct {
		spec  string
		node  reply  // nil: it is not requested
		leave bool   // the DaemonSet leaves this node
		doubt string // what could not be learned
	}{
		"everywhere":          {`{}`, nil, false, ""},
		"preferences":         {`{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[]}}}`, nil, false, ""},
		"labelled":            {`{"nodeSelector":{"os":"linux"}}`, answer(200, node), false, ""},
		"labelled otherwise":  {`{"nodeSelector":{"os":"windows"}}`, answer(200, node), true, ""},
		"without a label":     {`{"nodeSelector":{"os":"linux","mesh":""}}`, answer(200, node), true, ""},
		"in":                  {expression("os", "In", `"bsd","linux"`), answer(200, node), false, ""},
		"not in":              {expression("os", "NotIn", `"bsd"`), answer(200, node), false, ""},
		"not in, and missing": {expression("mesh", "NotIn", `"no"`), answer(200, node), false, ""},
		"in not in":           {expression("os", "NotIn", `"linux"`), answer(200, node), true, ""},
		"exists":              {expression("os", "Exists", ""), answer(200, node), false, ""},
		"doesn't exist":       {expression("os", "DoesNotExist", ""), answer(200, node), true, ""},
		"greater":             {expression("cores", "Gt", `"7"`), answer(200, node), false, ""},
		"not greater":         {expression("cores", "Gt", `"8"`), answer(200, node), true, ""},
		"less":                {expression("cores", "Lt", `"9"`), answer(200, node), false, ""},
		"no number":           {expression("os", "Lt", `"9"`), answer(200, node), true, ""},
		"by name":             {affinity(`{"matchFields":[{"key":"metadata.name","operator":"In","values":["node-1"]}]}`), answer(200, node), false, ""},
		"by another name":     {affinity(`{"matchFields":[{"key":"metadata.name","operator":"In","values":["node-2"]}]}`), answer(200, node), true, ""},
		"one of two": {
			affinity(`{"matchExpressions":[{"key":"mesh","operator":"Exists"}]},{"matchExpressions":[{"key":"os","operator":"Exists"}]}`), answer(200, node), false, "",
		},
		"both at once": {
			affinity(`{"matchExpressions":[{"key":"os","operator":"Exists"},{"key":"mesh","operator":"Exists"}]}`), answer(200, node), true, "",
		},
		"an empty term":   {affinity(`{}`), answer(200, node), true, ""},
		"a new operator":  {expression("os", "Like", `"l*"`), answer(200, node), false, `operator "Like"`},
		"two numbers":     {expression("cores", "Gt", `"7","8"`), answer(200, node), false, "with 2 values"},
		"not a number":    {expression("cores", "Gt", `"x"`), answer(200, node), false, "with what is not a number"},
		"no role":         {`{"nodeSelector":{"os":"windows"}}`, answer(403, forbidden), false, "403"},
		"no node":         {`{"nodeSelector":{"os":"windows"}}`, answer(404, strings.Replace(notFound, "agent", "node-1", 1)), false, "404"},
		"another node":    {`{"nodeSelector":{"os":"windows"}}`, answer(200, strings.Replace(node, "node-1", "node-2", 1)), false, "something other than the Node node-1"},
		"server restarts": {`{"nodeSelector":{"os":"windows"}}`, answer(503, ""), false, "503"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := []reply{answer(http.StatusOK, `{"kind":"DaemonSet","metadata":{"name":"agent","uid":"1"},"spec":{"template":{"spec":`+test.spec+`}}}`)}
			if test.node != nil {
				answers = append(answers, test.node)
			}
			f := newFixture(t, answers...)
			f.Node = "node-1"
			evidence, err := f.Deleted(f.ctx)
			if err != nil || evidence.Deleted() != test.leave || (evidence.Doubt != "") != (test.doubt != "") || !strings.Contains(evidence.Doubt, test.doubt) {
				t.Errorf("Deleted = %+v, %v", evidence, err)
			}
			if len(f.asked) != len(answers) || (test.node != nil && f.asked[1].URL.Path != "/api/v1/nodes/node-1") {
				t.Errorf("asked %d times", len(f.asked))
			}
		})
	}
}
