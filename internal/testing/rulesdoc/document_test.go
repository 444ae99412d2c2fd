// SPDX-License-Identifier: Apache-2.0

package rulesdoc

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/internal/testing/golden"
)

var update = flag.Bool("update", false, "rewrite the pages from what the planners say")

// path is the path of the document.
const path = "../../../docs/rules.md"

func TestFresh(t *testing.T) {
	t.Parallel()
	text, err := Document(goldens(t), read(t, "explanations.txt"))
	if err != nil {
		t.Fatal(err)
	}
	fresh(t, path, text)
}

// fresh compares a page with its text of now, or rewrites it.
func fresh(t *testing.T, path string, text []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(read(t, path), string(text)); diff != "" {
		page := strings.TrimPrefix(path, "../../../")
		t.Errorf("%s is stale (-file +now): run go test ./internal/testing/rulesdoc -update, and read the difference:\n%s", page, diff)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func goldens(t *testing.T) []Golden {
	t.Helper()
	cases, err := golden.Load("../../../interception/sidecar/testdata")
	if err != nil {
		t.Fatal(err)
	}
	all := make([]Golden, len(cases))
	for i, c := range cases {
		plan, _, err := c.Plan()
		if err != nil {
			t.Fatal(err)
		}
		all[i] = Golden{Name: c.Name, Plan: plan}
	}
	return all
}

// TestExplanationsFit removes an explanation and adds a surplus one.
func TestExplanationsFit(t *testing.T) {
	t.Parallel()
	text := strings.Replace(read(t, "explanations.txt"), "=== inbound.capture\n", "=== nothing.at-all\n", 1)
	_, err := Document(nil, text)
	for _, want := range []string{"inbound.capture (inbound connections go to the proxy) has no explanation", "makes no nothing.at-all"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says: %s", err, want)
		}
	}
}

// TestEveryIDOfTheSource looks for the ids in the planner's source: an id that no redirect leads to
// would otherwise be missed.
func TestEveryIDOfTheSource(t *testing.T) {
	t.Parallel()
	text := read(t, path)
	ids := sourceIDs(t)
	if len(ids) < 40 {
		t.Errorf("the source has %d ids only: %v", len(ids), ids)
	}
	for _, id := range ids {
		if !regexp.MustCompile("`" + regexp.QuoteMeta(id) + "(\\.v[46])?(\\.[ug]id)?`").MatchString(text) {
			t.Errorf("the planner has a rule %s, and docs/rules.md has not", id)
		}
	}
}

// sourceIDs returns the strings in the planner's source that are ids: words joined by dots.
func sourceIDs(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../../interception/sidecar/plan*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "../../../interception/spare.go")
	var ids []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Error(err)
				}
				if regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+$`).MatchString(text) {
					ids = append(ids, text)
				}
			}
			return true
		})
	}
	return ids
}
