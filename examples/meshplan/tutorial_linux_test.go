// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// TestTutorial follows docs/tutorial.md, and compares the output with the text in it.
func TestTutorial(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	n := newcomer{directory: t.TempDir()}
	for _, file := range blocks(t, string(page), "yaml") {
		name, _, _ := strings.Cut(strings.TrimPrefix(file, "# "), "\n")
		if err := os.WriteFile(filepath.Join(n.directory, name), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commands := 0
	for _, console := range blocks(t, string(page), "console") {
		for _, part := range strings.Split(strings.ReplaceAll("\n"+console, "\n# ", "\n$ "), "\n$ ")[1:] {
			command, want, _ := strings.Cut(part, "\n")
			if got := n.follow(t, command); !abridges(strings.TrimSuffix(want, "\n"), strings.TrimSuffix(got, "\n")) {
				t.Errorf("%s prints\n%s\nand not\n%s", command, got, want)
			}
			commands++
		}
	}
	if commands < 13 {
		t.Errorf("found %d commands only", commands)
	}
}

// blocks returns the fenced blocks of a Markdown text in a language.
func blocks(t *testing.T, markdown, language string) []string {
	t.Helper()
	parts := strings.Split(markdown, "```"+language+"\n")[1:]
	for i, part := range parts {
		block, _, closed := strings.Cut(part, "```\n")
		if !closed {
			t.Fatalf("a block has no end: %s", part)
		}
		parts[i] = block
	}
	return parts
}

// abridges reports whether short equals long, with lines of "..." for what it omits.
func abridges(short, long string) bool {
	lines := strings.Split(short, "\n")
	if !slices.Contains(lines, "...") {
		return short == long
	}
	rest := strings.Split(long, "\n")
	for _, line := range slices.DeleteFunc(lines, func(line string) bool { return line == "..." }) {
		at := slices.Index(rest, line)
		if at < 0 {
			return false
		}
		rest = rest[at+1:]
	}
	return true
}

// newcomer follows the tutorial in a directory.
type newcomer struct {
	directory string
	pod       *sandbox.Namespace // at /run/netns/shop
}

// follow runs a line of the tutorial, and returns its output.
func (n *newcomer) follow(t *testing.T, line string) string {
	t.Helper()
	const inPod = "ip netns exec shop "
	switch {
	case line == "ip netns add shop":
		n.pod = newNamespace(t)
		return ""
	case line == "meshplan plan my-pod.yaml -o json | bin/apply /run/netns/shop":
		nft, err := nftables.New(nftables.Options{})
		apply(t, nft, err, filepath.Join(n.directory, "my-pod.yaml"), n.pod.Path())
		return ""
	case strings.HasPrefix(line, inPod):
		return n.execute(t, append([]string{"nsenter", "--net=" + n.pod.Path()}, strings.Fields(strings.TrimPrefix(line, inPod))...))
	case strings.HasPrefix(line, "meshplan "):
		args := words(strings.TrimPrefix(line, "meshplan "))
		for i, arg := range args {
			if strings.HasSuffix(arg, ".yaml") {
				args[i] = filepath.Join(n.directory, arg)
			} else if arg == "netns:/run/netns/shop" {
				args[i] = "netns:" + n.pod.Path()
			}
		}
		got := meshplan(t, "", args...)
		return got.stderr + got.stdout
	default:
		return n.execute(t, []string{"sh", "-c", line})
	}
}

func (n *newcomer) execute(t *testing.T, args []string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), args[0], args[1:]...)
	command.Dir = n.directory
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, output)
	}
	return string(output)
}
