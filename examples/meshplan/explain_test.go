// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWalk runs the commands of docs/explain.md, and compares their output with the text in it.
func TestWalk(t *testing.T) {
	t.Parallel()
	const path = "../../docs/explain.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := runConsoles(t, string(text))
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil { //nolint:gosec // the file is a document
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(string(text), got); diff != "" {
		t.Errorf("run go test ./examples/meshplan -update, and read what it changes:\n%s", diff)
	}
}

var update = flag.Bool("update", false, "write docs/explain.md and testdata/node-walk.txt anew")

// runConsoles replaces the output below each command by the actual output.
func runConsoles(t *testing.T, text string) string {
	t.Helper()
	const opening, closing = "```console\n", "```\n"
	pieces := strings.Split(text, opening)
	if len(pieces) < 2 {
		t.Fatal("there are no commands")
	}
	for i, piece := range pieces[1:] {
		console, rest, found := strings.Cut(piece, closing)
		command, _, _ := strings.Cut(console, "\n")
		line, isCommand := strings.CutPrefix(command, "$ meshplan ")
		if !found || !isCommand {
			t.Fatalf("no command: %q", console)
		}
		pieces[i+1] = command + "\n" + runLine(t, line) + closing + rest
	}
	return strings.Join(pieces, opening)
}

// runLine runs a command in testdata. Warnings come first, as on a terminal.
func runLine(t *testing.T, line string) string {
	t.Helper()
	args := words(line)
	for i, arg := range args {
		if strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".json") {
			args[i] = "testdata/" + arg
		}
	}
	got := meshplan(t, "", args...)
	if got.code == exitTrouble {
		t.Errorf("%s: %s", line, got.stderr)
	}
	return strings.ReplaceAll(got.stderr+got.stdout, "testdata/", "")
}

// words splits a command line; double quotes enclose one word.
func words(line string) []string {
	var all []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			all = append(all, part)
			continue
		}
		all = append(all, strings.Fields(part)...)
	}
	return all
}
