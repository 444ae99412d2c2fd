// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// glossaryText is a glossary with a row of two words and one of two words in a row.
const glossaryText = "# Glossary\n\nNobody is not a subject.\n\n" + headingUnused + "\n\n| not | instead |\n|---|---|\n" +
	"| nobody, `anybody` | name the subject |\n| of its own accord | by itself |\n\n## More\n"

func TestCheck(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ten and a ", 10) + "bit"
	files := map[string]string{
		"README.md":           "Nobody knows.\n\n" + long + "\n",
		"fine.md":             "| " + long + "\n[a](" + long + ") <https://example.com/" + strings.Repeat("a", 100) + ">\n```\n" + long + " nobody\n```\nnobodys\n",
		"code.go":             "// Package code opens of its own accord.\npackage code\n\n// " + long + "\n//\t" + long + "\n//nolint:x // " + long + "\nconst a = `a\nnobody` // anybody\n",
		"code_test.go":        "package code\n\nconst b = \"nobody\"\n\nfunc Example() {\n\t// Nobody.\n\n\t// Output:\n\t// nobody " + long + "\n}\n",
		"testdata/a.md":       "nobody\n",
		"bin/a.md":            "nobody\n",
		".git/a.md":           "nobody\n",
		"a.txt":               "nobody\n",
		"history/2020/old.md": "nobody\n",
		"generated.md":        "nobody\n",
		exceptionsFile:        "# a comment\n\nhistory/: not edited any more\ngenerated.md: a page\nfine.md: nothing\n",
		glossaryFile:          glossaryText,
	}
	got, err := check(tree(files))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`README.md:1: "Nobody": name the subject`,
		`README.md:3: 103 columns, more than 100: wrap it`,
		`code.go:1: "of its own accord": by itself`,
		`code.go:4: 106 columns, more than 100: wrap it`,
		`code.go:8: "anybody": name the subject`,
		`code.go:8: "nobody": name the subject`,
		`code_test.go:6: "Nobody": name the subject`,
		`docs/glossary.md:3: "Nobody": name the subject`,
		`.ci/words: fine.md needs no exception: remove the line`,
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCheckFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ file, text, want string }{
		"no reason":   {exceptionsFile, "README.md\n", `"README.md" has no reason`},
		"no table":    {glossaryFile, headingUnused + "\n\nnone\n", "has no table of two columns"},
		"not Go":      {"a.go", "pakkage", "read a.go: "},
		"no glossary": {glossaryFile, "", "has no table"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{exceptionsFile: "", glossaryFile: glossaryText}
			files[test.file] = test.text
			if _, err := check(tree(files)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	var out, complaint strings.Builder
	if code := run([]string{t.TempDir()}, &out, &complaint); code != 1 || !strings.Contains(complaint.String(), glossaryFile) {
		t.Errorf("exit code %d, want 1; want the missing file in:\n%s", code, complaint.String())
	}
}

func tree(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}
