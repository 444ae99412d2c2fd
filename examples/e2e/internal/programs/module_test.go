// SPDX-License-Identifier: Apache-2.0

package programs_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/programs"
)

func TestBuildKeepsPrograms(t *testing.T) {
	t.Parallel()
	module, cache := hello(t, "hello"), t.TempDir()
	directory, err := module.Build(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	if got := said(t, filepath.Join(directory, "hello")); got != "hello, world\n" {
		t.Errorf("the program says %q", got)
	}
	mark := filepath.Join(directory, "mark")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := module.Build(t.Context(), cache); err != nil || again != directory {
		t.Errorf("built again: %s, %v", again, err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the kept programs were built again: %v", err)
	}
	module.LinkerFlags = []string{"-X", "main.whom=you"}
	other, err := module.Build(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	if got := said(t, filepath.Join(other, "hello")); got != "hello, you\n" || other == directory {
		t.Errorf("with other flags, %s says %q", other, got)
	}
}

func TestBuildFails(t *testing.T) {
	t.Parallel()
	module, cache := hello(t, "broken"), t.TempDir()
	if err := os.WriteFile(filepath.Join(module.Directory, "main.go"), []byte("package main\nfunc main() { nonsense }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := module.Build(t.Context(), cache)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(err.Error(), "undefined: nonsense") {
		t.Errorf("error %v, not the compiler's", err)
	}
	left, err := fs.Glob(os.DirFS(cache), "*")
	if err != nil || len(left) != 1 || left[0] != "broken.lock" {
		t.Errorf("left in the cache: %v, %v", left, err)
	}
}

func hello(t *testing.T, name string) programs.Module {
	t.Helper()
	directory := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":  "module example.com/hello\n\ngo 1.26.0\n",
		"main.go": "package main\n\nimport \"os\"\n\nvar whom = \"world\"\n\nfunc main() { os.Stdout.WriteString(\"hello, \" + whom + \"\\n\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(directory, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return programs.Module{Name: name, Directory: directory, Packages: []string{"."}}
}

func said(t *testing.T, program string) string {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
