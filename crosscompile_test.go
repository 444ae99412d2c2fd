// SPDX-License-Identifier: Apache-2.0

package meshcni_test

import (
	"os/exec"
	"testing"
)

// target is a system that packages have to compile for.
type target struct {
	os, arch string
	// pureOnly limits the check to the pure packages.
	pureOnly bool
	// verbs are the go subcommands that must succeed: build, and vet for the tests too.
	verbs []string
}

func targets() []target {
	return []target{
		{os: "linux", arch: "amd64"}, // the other tests cover it
		{os: "linux", arch: "arm64", verbs: []string{"build"}},
		{os: "darwin", arch: "arm64", verbs: []string{"build", "vet"}},
		{os: "windows", arch: "amd64", pureOnly: true, verbs: []string{"build", "vet"}},
		{os: "js", arch: "wasm", pureOnly: true, verbs: []string{"build", "vet"}},
	}
}

func (t target) String() string { return t.os + "/" + t.arch }

// environment returns the variables that make the go command build for the target; the zero target
// changes nothing.
func (t target) environment() []string {
	if t.os == "" {
		return nil
	}
	return []string{"GOOS=" + t.os, "GOARCH=" + t.arch, "CGO_ENABLED=0"}
}

// onEachTarget runs a test for each target, with the packages that must compile there.
func onEachTarget(t *testing.T, test func(t *testing.T, on target, packages []string)) {
	t.Helper()
	for _, on := range targets() {
		t.Run(on.String(), func(t *testing.T) {
			t.Parallel()
			packages := []string{"./..."}
			if on.pureOnly {
				packages = pure(t)
			}
			test(t, on, packages)
		})
	}
}

// TestCrossCompile compiles packages for other systems than the one it runs on.
func TestCrossCompile(t *testing.T) {
	t.Parallel()
	onEachTarget(t, func(t *testing.T, on target, packages []string) {
		t.Helper()
		for _, verb := range on.verbs {
			command := exec.CommandContext(t.Context(), "go", append([]string{verb}, packages...)...)
			command.Env = append(command.Environ(), on.environment()...)
			if output, err := command.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %v\n%s", on, command, err, output)
			}
		}
	})
}
