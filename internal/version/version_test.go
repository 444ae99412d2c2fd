// SPDX-License-Identifier: Apache-2.0

package version

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheLinkerSetsIt builds a program with the flag that the Makefile uses.
func TestTheLinkerSetsIt(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "meshplan")
	const flag = "-X github.com/meshcni/meshcni/internal/version.version=v1.2.3-linked"
	command := exec.Command("go", "build", "-ldflags", flag, "-o", program, "github.com/meshcni/meshcni/examples/meshplan")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	output, err := exec.Command(program, "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "v1.2.3-linked") {
		t.Errorf("it says %q, %v", output, err)
	}
}
