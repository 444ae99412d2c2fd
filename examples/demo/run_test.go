// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// call runs the program outside the sandbox; enter stands in for the sandbox.
func call(t *testing.T, enter func(stage string) (sandbox.Info, error), vars map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	env := environment{
		args: args, getenv: func(name string) string { return vars[name] },
		stdin: strings.NewReader(""), stdout: &out, stderr: &errs,
		untilSignal: func(ctx context.Context) context.Context { return ctx },
		enter: func(_ context.Context, stage string) (sandbox.Info, error) {
			if enter == nil {
				t.Errorf("a sandbox is entered for %q", stage)
				return sandbox.Info{}, io.EOF
			}
			return enter(stage)
		},
	}
	code = run(t.Context(), env)
	return code, out.String(), errs.String()
}

func TestHelp(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := call(t, nil, nil, "--help")
	if code != exitOK || stderr != "" {
		t.Errorf("exit code %d, errors %q", code, stderr)
	}
	for _, word := range []string{"--keep", "--binaries", "POD", "Exit codes"} {
		if !strings.Contains(stdout, word) {
			t.Errorf("the help doesn't name %s", word)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, pod, want string
		args            []string
	}{
		{"unknown flag", "", "-unknown", []string{"--unknown"}},
		{"word", "", `"pod.yaml" is not a flag`, []string{"pod.yaml"}},
		{"missing pod", "testdata/missing.yaml", "testdata/missing.yaml: no such file", nil},
		{"bad pod", "pod.go", "pod.go: ", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			code, _, stderr := call(t, nil, map[string]string{"POD": test.pod}, test.args...)
			if code != exitUsage || !strings.Contains(stderr, test.want) || !strings.Contains(stderr, "--help") {
				t.Errorf("exit code %d, %q, want %d and %q", code, stderr, exitUsage, test.want)
			}
		})
	}
}

func TestForbiddenSandboxIsSaidBeforeAnythingIsBuilt(t *testing.T) {
	t.Parallel()
	forbidden := &sandbox.ForbiddenError{
		Step: "create namespaces", Setting: "user.max_user_namespaces is 0", Remedy: "sudo sysctl -w user.max_user_namespaces=10000", Err: os.ErrPermission,
	}
	code, stdout, stderr := call(t, func(string) (sandbox.Info, error) { return sandbox.Info{}, forbidden }, nil)
	if code != exitFailure || stdout != "" || !strings.Contains(stderr, "run: sudo sysctl -w user.max_user_namespaces=10000") {
		t.Errorf("exit code %d, output %q, errors %q, want the command that helps and nothing else", code, stdout, stderr)
	}
}

func TestMissingBinaries(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	code, _, stderr := call(t, func(string) (sandbox.Info, error) { return sandbox.Info{}, nil }, nil, "--binaries", directory)
	if code != exitFailure || !strings.Contains(stderr, directory+"/install-cni") {
		t.Errorf("exit code %d, errors %q, want the missing file", code, stderr)
	}
}

func TestExitCodeOfTheProgramInside(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	for _, p := range nodeIn("").programs() {
		name := p.importPath[strings.LastIndexByte(p.importPath, '/')+1:]
		if err := os.WriteFile(directory+"/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var node string
	code, _, _ := call(t, func(stage string) (sandbox.Info, error) {
		if stage == stageRehearsal {
			return sandbox.Info{}, nil
		}
		node = stage
		return sandbox.Info{ExitCode: 7}, nil
	}, nil, "--binaries", directory)
	if code != 7 {
		t.Errorf("exit code %d, want that of the program inside, 7", code)
	}
	if _, err := os.Stat(node); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left behind: %v", node, err)
	}
}
