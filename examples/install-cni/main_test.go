// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// TestMain gives the tests mounts of their own.
func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(suite{m})) }

// suite runs the tests with a directory for the programs that they start, and removes it at the
// end.
type suite struct{ tests *testing.M }

func (s suite) Run() int {
	dir, err := os.MkdirTemp("", "install-cni-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = dir
	return s.tests.Run()
}

var built string // the directory of suite

// The programs that tests start. Each is built once, for the first test that needs it, because
// linking takes seconds.
var (
	installCNI  = building("../install-cni")
	nodeWatcher = building("../node-watcher")
	nodeAmbient = building("../node-ambient")
	istioCNI    = building("../istio-cni")
)

// building returns a function that builds the program in a folder, once, and returns its path.
func building(folder string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path := filepath.Join(built, filepath.Base(folder))
		if output, err := exec.Command("go", "build", "-o", path, folder).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", folder, err, output)
		}
		return path, nil
	})
}

// build returns the path of a program.
func build(t testing.TB, program func() (string, error)) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
