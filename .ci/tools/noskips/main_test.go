// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRun runs the real go test on a module.
func TestRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body, want string
		code       int
	}{
		"passed":       {body: `t.Log("quiet")`, want: "1 passed, 0 failed, 0 skipped\n", code: 0},
		"failed":       {body: `t.Error("loud")`, want: "a_test.go:5: loud\n--- FAIL: TestA", code: 1},
		"skipped":      {body: `t.Skip("because")`, want: "skipped: example.com/a TestA: a_test.go:5: because\n", code: 1},
		"panicked":     {body: `panic("no")`, want: "failed: example.com/a TestA\n", code: 1},
		"exited":       {body: `os.Exit(0)`, want: "0 passed, 1 failed, 0 skipped\n", code: 1},
		"not compiled": {body: `x`, want: "a_test.go:5:27: undefined: x\n", code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := module(t, test.body)
			var out strings.Builder
			code := run(t.Context(), []string{"-C", directory, "./..."}, &out, t.Output())
			if code != test.code || !strings.Contains(out.String(), test.want) {
				t.Errorf("exit code %d, want %d; want %q in:\n%s", code, test.code, test.want, out.String())
			}
		})
	}
}

func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var out strings.Builder
	code := run(ctx, []string{"-C", module(t, "select {}"), "./..."}, &out, t.Output())
	if want := "0 passed, 1 failed, 0 skipped\n"; code != 1 || !strings.HasSuffix(out.String(), want) {
		t.Errorf("exit code %d, want 1; want %q at the end of:\n%s", code, want, out.String())
	}
}

func TestRunWithoutPackages(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	code := run(t.Context(), []string{"-C", module(t, ""), "./nowhere"}, &out, t.Output())
	if want := "0 passed, 1 failed, 0 skipped\n"; code != 1 || !strings.HasSuffix(out.String(), want) {
		t.Errorf("exit code %d, want 1; want %q at the end of:\n%s", code, want, out.String())
	}
}

func module(t *testing.T, body string) (directory string) {
	t.Helper()
	directory = t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.com/a\n\ngo 1.26.0\n",
		"a_test.go": "package a\n\nimport (\"os\"; \"testing\")\n\nfunc TestA(t *testing.T) {" + body + "}\n\nvar _ = os.Exit\n",
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}
