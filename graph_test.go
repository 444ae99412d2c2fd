// SPDX-License-Identifier: Apache-2.0

package meshcni_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/meshcni/meshcni"

// graph holds each package's imports. Packages of this module are named from its root:
// "./interception".
type graph map[string]node

type node struct {
	imports  []string
	standard bool
}

// add adds an import, and the packages if they are new. It takes a name without a dot for the
// standard library.
func (g graph) add(from, to string) {
	for _, name := range []string{from, to} {
		if _, ok := g[name]; !ok {
			g[name] = node{standard: !strings.Contains(name, ".")}
		}
	}
	n := g[from]
	n.imports = append(n.imports, to)
	g[from] = n
}

// list gets packages and all their imports from the go command.
func list(t *testing.T, on target, packages ...string) graph {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-json=ImportPath,Imports,Standard"}, packages...)...)
	command.Env = append(command.Environ(), on.environment()...)
	output, err := command.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s", command, err, exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	g := graph{}
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p struct {
			ImportPath string
			Imports    []string
			Standard   bool
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return g
		} else if err != nil {
			t.Fatal(err)
		}
		for i := range p.Imports {
			p.Imports[i] = short(p.Imports[i])
		}
		g[short(p.ImportPath)] = node{imports: p.Imports, standard: p.Standard}
	}
}

// short returns the name of a package of this module from its root.
func short(path string) string {
	if rest, ok := strings.CutPrefix(path, module); ok && (rest == "" || rest[0] == '/') {
		return "." + rest
	}
	return path
}

// rule lists what packages may not reach by their imports, directly or through others. Its patterns
// are those of the go command; "std" is the standard library.
type rule struct {
	why string
	// from and except choose the packages that the rule covers.
	from, except []string
	// never may not be reached. If only is given, nothing else may be.
	never, only []string
}

// violations returns the ways in which a graph breaks the rule: for each package and each forbidden
// package that it reaches, one shortest path.
func (r rule) violations(g graph) []string {
	var found []string
	for _, pattern := range r.from {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(g)), func(name string) bool { return g.match(pattern, name) }) {
			found = append(found, fmt.Sprintf("no package is %s: %s", pattern, r.why))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g)) {
		if g.matchAny(r.from, name) && !g.matchAny(r.except, name) {
			for _, chain := range g.chains(name, r.forbids) {
				found = append(found, fmt.Sprintf("%s: %s", strings.Join(chain, " imports "), r.why))
			}
		}
	}
	return found
}

func (r rule) forbids(g graph, name string) bool {
	return g.matchAny(r.never, name) || r.only != nil && !g.matchAny(r.only, name)
}

// chains returns the shortest paths from a package to the forbidden ones. No path leads through a
// forbidden package.
func (g graph) chains(from string, forbidden func(graph, string) bool) [][]string {
	var found [][]string
	seen := map[string]bool{from: true}
	for queue := [][]string{{from}}; len(queue) > 0; queue = queue[1:] {
		chain := queue[0]
		for _, next := range g[chain[len(chain)-1]].imports {
			if seen[next] {
				continue
			}
			seen[next] = true
			longer := append(slices.Clone(chain), next)
			switch {
			case forbidden(g, next):
				found = append(found, longer)
			case !g[next].standard: // the standard library's own imports do not matter
				queue = append(queue, longer)
			}
		}
	}
	return found
}

// unlike returns packages of a program that are not listed, and listed ones that it lacks.
func (g graph) unlike(program string, listed []string) []string {
	var problems []string
	parts := map[string]bool{program: true}
	for queue := [][]string{{program}}; len(queue) > 0; queue = queue[1:] {
		chain := queue[0]
		name := chain[len(chain)-1]
		if !slices.Contains(listed, name) {
			problems = append(problems, strings.Join(chain, " imports ")+": each pod's start waits for all that the plugin is made of: "+
				"measure it (make bench), and add it to pluginLinks if it is worth that")
		}
		if g[name].standard {
			continue
		}
		for _, next := range g[name].imports {
			if !parts[next] {
				parts[next] = true
				queue = append(queue, append(slices.Clone(chain), next))
			}
		}
	}
	slices.Sort(problems)
	for _, name := range listed {
		if !parts[name] {
			problems = append(problems, name+" is not linked any more: take it out of pluginLinks")
		}
	}
	return problems
}

func (g graph) matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return g.match(pattern, name) })
}

// match matches as the go command does: "..." stands for anything, and "x/..." also matches x.
func (g graph) match(pattern, name string) bool {
	if pattern == "std" {
		return g[name].standard
	}
	expression := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\.\.\.`, `.*`)
	if prefix, ok := strings.CutSuffix(expression, `/.*`); ok {
		expression = prefix + `(/.*)?`
	}
	return regexp.MustCompile(`^(` + expression + `)$`).MatchString(name)
}
