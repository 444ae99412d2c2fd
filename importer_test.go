// SPDX-License-Identifier: Apache-2.0

package meshcni_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// importer is a module outside this one, with only the module cache available.
type importer struct {
	directory string
}

func newImporter(t *testing.T) importer {
	t.Helper()
	tree, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	i := importer{directory: t.TempDir()}
	i.write(t, "go.mod", fmt.Sprintf("module example.com/mesh\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %[1]s => %s\n", module, tree))
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	i.write(t, "go.sum", string(sums))
	return i
}

func (i importer) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(i.directory, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (i importer) imports(t *testing.T, name string, packages []string) {
	t.Helper()
	text := "package " + name + "\n\n"
	for _, p := range packages {
		text += fmt.Sprintf("import _ %q\n", module+strings.TrimPrefix(p, "."))
	}
	i.write(t, name+"/"+name+".go", text)
}

// add writes a page's package into a directory named after its command or package.
func (i importer) add(t *testing.T, source string) {
	t.Helper()
	_, rest, _ := strings.Cut("\n"+source, "\npackage ")
	name, _, _ := strings.Cut(rest, "\n")
	directory := strings.TrimSuffix(name, "_test")
	if words := strings.Fields(source); len(words) > 2 && words[1] == "Command" {
		directory = words[2]
	}
	i.write(t, filepath.Join(directory, name+".go"), source)
}

// build builds the command of a page for this system and, as a check, for macOS. It returns the
// program's path.
func (i importer) build(t *testing.T, page, command string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range packagesIn(t, string(text)) {
		if strings.HasPrefix(source, "// Command "+command+" ") {
			i.add(t, source)
		}
	}
	program := filepath.Join(i.directory, command+".built")
	i.run(t, target{os: "darwin", arch: "arm64"}, "build", "-o", os.DevNull, "./"+command)
	i.run(t, target{}, "build", "-o", program, "./"+command)
	return program
}

// run runs the go command in the module, for a system, and returns its output.
func (i importer) run(t *testing.T, on target, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = i.directory
	command.Env = append(command.Environ(), append(on.environment(), "GOFLAGS=-mod=mod", "GOWORK=off")...)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Errorf("%s: %v: %v\n%s%s", on, command, err, output, stderr.String())
	}
	return string(output)
}

func TestImporter(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	i := newImporter(t)
	i.imports(t, "pure", pure(t))
	i.imports(t, "node", []string{"./conflist", "./interception", "./interception/nftables", "./kubeconfig"})
	for _, source := range packagesIn(t, string(readme)) {
		i.add(t, source)
	}
	for _, on := range []target{{os: "linux", arch: "amd64"}, {os: "darwin", arch: "arm64"}} {
		i.run(t, on, "build", "./...")
		for dependency := range strings.Lines(i.run(t, on, "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./pure")) {
			if !strings.HasPrefix(dependency, module+"/") && !strings.HasPrefix(dependency, "example.com/mesh/") {
				t.Errorf("%s: the pure packages need %s", on, dependency)
			}
		}
	}
	said := i.run(t, target{}, "run", "./where")
	_, shown, _ := strings.Cut(string(readme), "\nIt prints\n\n```text\n")
	if shown, _, _ = strings.Cut(shown, "```"); shown != said {
		t.Errorf("README shows\n%s\nand the program prints\n%s", shown, said)
	}
}

// TestPagesCompile puts the packages of each page in docs into a module for that page, a directory
// for each, and runs their tests.
func TestPagesCompile(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join("docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	compiled := 0
	for _, path := range pages {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(page); strings.Contains(text, "```go\n// Package ") || strings.Contains(text, "```go\n// Command ") {
			compiled++
			t.Run(filepath.Base(path), func(t *testing.T) {
				t.Parallel()
				compilePage(t, text)
			})
		}
	}
	if compiled == 0 {
		t.Error("no page has a package")
	}
}

func compilePage(t *testing.T, page string) {
	t.Helper()
	i := newImporter(t)
	for _, source := range packagesIn(t, page) {
		i.add(t, source)
	}
	i.run(t, target{}, "vet", "./...")
	i.run(t, target{os: "darwin", arch: "arm64"}, "vet", "./...")
	if strings.Contains(page, "\nfunc Test") {
		i.run(t, target{}, "test", "./...")
	}
}

// mostMain limits the length, in lines, of the main of another mesh's plugin.
const mostMain = 40

// TestPluginOfAnImporterIsShort measures the plugin of docs/importing.md, which TestPagesCompile
// runs.
func TestPluginOfAnImporterIsShort(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("docs", "importing.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range packagesIn(t, string(page)) {
		if strings.HasPrefix(source, "// Command linkmesh-cni is ") && strings.Contains(source, "\npackage main\n") {
			if lines := strings.Count(source, "\n"); lines > mostMain {
				t.Errorf("it has %d lines, and may have %d", lines, mostMain)
			}
			return
		}
	}
	t.Error("the page has no plugin")
}

// packagesIn returns the Go packages in a Markdown text.
func packagesIn(t *testing.T, markdown string) []string {
	t.Helper()
	var all []string
	for _, part := range strings.Split(markdown, "```go\n")[1:] {
		source, _, closed := strings.Cut(part, "```\n")
		if !closed {
			t.Fatal("a package has no end")
		}
		all = append(all, source)
	}
	if len(all) == 0 {
		t.Fatal("there is no package in it")
	}
	return all
}
