// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestManualsCommands runs the commands of the operators' manuals on a node: each must exist, and
// print something.
func TestManualsCommands(t *testing.T) {
	t.Parallel()
	commands := 0
	for _, path := range []string{"../../docs/operations.md", "../../docs/porting-from-istio.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "```sh\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			for line := range strings.Lines(block) {
				args := strings.Fields(line)
				if len(args) == 0 || args[0] != "install-cni" {
					t.Errorf("%s: %q is not a command of install-cni", path, line)
					continue
				}
				commands++
				n := newNode(t)
				n.write(n.netDir, "10-calico.conflist", calico, 0o644)
				n.startReady().end()
				if args[1] == "ambient" {
					n.env["MOUNTED_PROC_DIR"] = "/proc"
					n.serveAgent(rightAgent())
				}
				if out, said := n.command(exitOK, args[1:]...); out+said == "" {
					t.Errorf("%s: %q prints nothing", path, line)
				}
			}
		}
	}
	if commands < 15 {
		t.Errorf("found %d commands only", commands)
	}
}

// TestManualsMessages looks for the messages of docs/operations.md in the programs.
func TestManualsMessages(t *testing.T) {
	t.Parallel()
	source := sources(t, ".", "../../interception/plugin", "../node-watcher", "../internal/contact", "../../conflist", "../../internal/filesystem")
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, failures, found := strings.Cut(string(text), "\n## Failures of the daemon\n")
	messages := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(failures, -1)
	if !found || len(messages) < 25 {
		t.Fatalf("found %d messages only", len(messages))
	}
	for _, message := range messages {
		if message[1] != "no space left on device" && !strings.Contains(source, message[1]) {
			t.Errorf("no program says %q", message[1])
		}
	}
}

// sources returns the programs' text, with split strings joined.
func sources(t *testing.T, directories ...string) string {
	t.Helper()
	var all strings.Builder
	for _, directory := range directories {
		err := filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return regexp.MustCompile(`" ?\+\s*"`).ReplaceAllString(all.String(), "")
}

// TestManualsFiles checks that exactly the files that docs/operations.md lists are on a node.
func TestManualsFiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.startReady().end()
	for directory, onNode := range map[string]string{n.binDir: "/opt/cni/bin/", n.runDir: "/var/run/istio-cni/"} {
		for name := range n.files(directory) {
			if !strings.Contains(string(text), "\n| `"+onNode+name+"` | ") {
				t.Errorf("%s%s is not in the table", onNode, name)
			}
		}
	}
}
