// SPDX-License-Identifier: Apache-2.0

package meshcni_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPublicAPIStaysSmall counts the lines that go doc -short prints of each public package, which
// newcomers read first.
func TestPublicAPIStaysSmall(t *testing.T) {
	t.Parallel()
	limits := map[string]int{module + "/interception": 135, module + "/interception/sidecar": 65}
	const limit = 60
	for _, name := range publicPackages(t) {
		t.Run(strings.TrimPrefix(name, module+"/"), func(t *testing.T) {
			t.Parallel()
			text := goCommand(t, "doc", "-short", name)
			most, special := limits[name]
			if !special {
				most = limit
			}
			if lines := strings.Count(text, "\n"); lines == 0 || lines > most {
				t.Errorf("go doc -short prints %d lines of at most %d: unexport what only our own packages need, or move it to internal/\n%s",
					lines, most, text)
			}
		})
	}
}

// publicPackages returns those that an importer can use.
func publicPackages(t *testing.T) []string {
	t.Helper()
	var public []string
	for name := range strings.Lines(goCommand(t, "list", "./ambient/...", "./conflist/...", "./interception/...", "./kubeconfig/...", "./repair/...")) {
		if name = strings.TrimSpace(name); !strings.Contains(name, "/internal/") {
			public = append(public, name)
		}
	}
	if len(public) < 20 {
		t.Fatalf("go list finds %q only", public)
	}
	return public
}

func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	return goCommandOn(t, target{}, args...)
}

// goCommandOn runs the go command for a system, and returns its output.
func goCommandOn(t *testing.T, on target, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Env = append(command.Environ(), on.environment()...)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, stderr.String())
	}
	return string(output)
}
