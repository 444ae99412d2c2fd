// SPDX-License-Identifier: Apache-2.0

package meshcni_test

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// mostLines limits the length of a source file.
const mostLines = 600

func TestSources(t *testing.T) {
	t.Parallel()
	complaints, err := sourceComplaints(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, complaint := range complaints {
		t.Error(complaint)
	}
}

func TestSourcesCatch(t *testing.T) {
	t.Parallel()
	source := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	got, err := sourceComplaints(fstest.MapFS{
		"doc.go":                    source("// Package x is.\npackage x\n"),
		"conflist/doc.go":           source("package conflist\n"),
		"conflist/long.go":          source("package conflist\n" + strings.Repeat("\n", mostLines)),
		"conflist/testdata/none.go": source("package none\n"),
		"interception/splice.go":    source("package interception\n"),
		"internal/helpers.go":       source("package internal\n"),
		"internal/doc.go":           source("// Package internal is.\npackage internal\n"),
		"lib/doc.go":                source("// Package lib is.\npackage lib\n"),
		".git/x.go":                 source("package x\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"conflist/doc.go: the package has no comment",
		"conflist/long.go: 601 lines; a file has 600 at most",
		"interception: there is no doc.go",
		"internal/helpers.go: a file is named for what it defines",
		"lib: not one of the rooms in docs/architecture.md",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// rooms returns the top directories that may have source files.
func rooms() []string {
	return []string{".", ".ci", "ambient", "conflist", "examples", "internal", "interception", "kubeconfig", "repair"}
}

// sourceComplaints returns what is wrong with the Go files of a tree, and with their layout.
func sourceComplaints(tree fs.FS) ([]string, error) {
	files := map[string][]string{} // by directory
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "testdata"):
			return fs.SkipDir
		case path.Ext(name) == ".go":
			files[path.Dir(name)] = append(files[path.Dir(name)], path.Base(name))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var complaints []string
	for directory, names := range files {
		if room, _, _ := strings.Cut(directory, "/"); !slices.Contains(rooms(), room) {
			complaints = append(complaints, directory+": not one of the rooms in docs/architecture.md")
		}
		if !slices.Contains(names, "doc.go") {
			complaints = append(complaints, directory+": there is no doc.go")
		}
		for _, name := range names {
			complaint, err := fileComplaint(tree, path.Join(directory, name))
			if err != nil {
				return nil, err
			}
			if complaint != "" {
				complaints = append(complaints, path.Join(directory, name)+": "+complaint)
			}
		}
	}
	slices.Sort(complaints)
	return complaints, nil
}

// fileComplaint returns what is wrong with one file; "" if nothing is.
func fileComplaint(tree fs.FS, name string) (string, error) {
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		return "", err
	}
	if lines := bytes.Count(text, []byte("\n")); lines > mostLines {
		return fmt.Sprintf("%d lines; a file has %d at most", lines, mostLines), nil
	}
	switch noun, _, _ := strings.Cut(strings.TrimSuffix(path.Base(name), ".go"), "_"); noun {
	case "common", "helper", "helpers", "misc", "type", "types", "util", "utils":
		return "a file is named for what it defines", nil
	case "doc":
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return "", err
		}
		if file.Doc == nil {
			return "the package has no comment", nil
		}
	}
	return "", nil
}
