// SPDX-License-Identifier: Apache-2.0

package meshcni_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// counterpartsPage lists the tests of another project with ours.
const counterpartsPage = "docs/istio-ambient-tests.md"

// withoutCounterpart are what a line of the page may have in place of our tests.
var withoutCounterpart = []string{"comes with the node's programs", "non-goal"}

// TestCounterparts looks for each of our tests that the page names: the function in its package,
// and the case among the texts of that function and of what it uses.
func TestCounterparts(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(counterpartsPage)
	if err != nil {
		t.Fatal(err)
	}
	packages, lines := map[string]testTexts{}, 0
	var mentioned []string // in what differs
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Istio |") {
			continue
		}
		lines++
		if len(cells) != 3 {
			t.Errorf("%s: a line has three cells: %s", counterpartsPage, line)
			continue
		}
		if complaint := judgeCounterpart(t, packages, strings.TrimSpace(cells[1])); complaint != "" {
			t.Errorf("%s: %s: %s", counterpartsPage, strings.TrimSpace(cells[0]), complaint)
		}
		mentioned = append(mentioned, regexp.MustCompile("`Test[^`/]+").FindAllString(cells[2], -1)...)
	}
	for _, span := range mentioned {
		in := func(p testTexts) bool { return p[strings.Trim(span, "`")] != nil }
		if !slices.ContainsFunc(slices.Collect(maps.Values(packages)), in) {
			t.Errorf("%s: no package of the page has %s`, which a line mentions", counterpartsPage, span)
		}
	}
	if lines < 250 {
		t.Errorf("%s has %d lines of tests, and had 250: has its form changed?", counterpartsPage, lines)
	}
}

// judgeCounterpart returns what is wrong with the cell of our tests, or "". Packages are read once.
func judgeCounterpart(t *testing.T, packages map[string]testTexts, cell string) string {
	t.Helper()
	if slices.Contains(withoutCounterpart, cell) {
		return ""
	}
	spans := regexp.MustCompile("`[^`]+`")
	if rest := spans.ReplaceAllString(cell, ""); strings.Trim(rest, ",; ") != "" || !strings.Contains(cell, "`Test") {
		return "want packages with tests, or one of " + strings.Join(withoutCounterpart, ", ") + ": " + cell
	}
	in := ""
	for _, span := range spans.FindAllString(cell, -1) {
		name := strings.Trim(span, "`")
		if !strings.HasPrefix(name, "Test") {
			in = name
			if packages[in] == nil {
				packages[in] = readTestTexts(t, in)
			}
			continue
		}
		function, of, hasCase := strings.Cut(name, "/")
		if packages[in][function] == nil {
			return in + " has no " + function
		}
		if hasCase && !packages[in].reaches(function, of, map[string]bool{}) {
			return in + ": " + function + " has no case " + strconv.Quote(of)
		}
	}
	return ""
}

// testTexts are the functions and variables of a package's test files, by their names: each with
// the names and the quoted texts in it.
type testTexts map[string][]ast.Node

// readTestTexts parses the test files of a package, for whatever system they are.
func readTestTexts(t *testing.T, directory string) testTexts {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(directory), "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("test files in %s: %v, %v", directory, files, err)
	}
	all := testTexts{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				all[d.Name.Name] = append(all[d.Name.Name], d.Body)
			case *ast.GenDecl:
				all.addValues(d)
			}
		}
	}
	return all
}

func (all testTexts) addValues(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		if values, is := spec.(*ast.ValueSpec); is {
			for _, name := range values.Names {
				all[name.Name] = append(all[name.Name], values)
			}
		}
	}
}

// reaches reports whether a text is in the function of a name, or in what that uses.
func (all testTexts) reaches(name, text string, visited map[string]bool) bool {
	visited[name] = true
	used, found := map[string]bool{}, false
	for _, node := range all[name] {
		ast.Inspect(node, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				used[n.Name] = true
			case *ast.BasicLit:
				unquoted, err := strconv.Unquote(n.Value)
				found = found || err == nil && unquoted == text
			}
			return !found
		})
	}
	return found || slices.ContainsFunc(slices.Collect(maps.Keys(used)), func(other string) bool {
		return !visited[other] && all.reaches(other, text, visited)
	})
}
