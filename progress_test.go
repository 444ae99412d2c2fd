// SPDX-License-Identifier: Apache-2.0

//go:build unix

package meshcni_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestProgressLeavesNothingBehind compiles a program as make demo does. It writes no binary into
// the directory.
func TestProgressLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(".ci/progress")
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	files := map[string]string{
		"go.mod":                "module example.org/shop\n",
		"examples/cart/main.go": "package main\n\nfunc main() {}\n",
		"examples/shop/main.go": "package main\n\nfunc main() {}\n",
	}
	for name, text := range files {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, packages := range [][]string{{"./examples/cart"}, {"./examples/cart", "./examples/shop"}} {
		command := exec.CommandContext(t.Context(), script, packages...)
		command.Dir = directory
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", packages, err, output)
		}
	}
	left, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range left {
		names = append(names, entry.Name())
	}
	if got := strings.Join(names, " "); got != "examples go.mod" {
		t.Errorf("the directory has %s", got)
	}
}
