// SPDX-License-Identifier: Apache-2.0

//go:build unix

package meshcni_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPrerequisites runs the script that installs what tests need, on machines made of the programs
// in testdata/machine.
func TestPrerequisites(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		programs map[string]string
		needs    []string
		want     answer
	}{
		"all there": {
			programs: map[string]string{"nft": "program", "gcc": "program", "id": "root", "apt-get": "broken-apt-get"},
			needs:    []string{"nft", "gcc"},
		},
		"root": {
			programs: map[string]string{"iptables": "program", "id": "root", "apt-get": "apt-get"},
			needs:    []string{"nft", "iptables", "newuidmap", "gcc"},
			want: answer{
				stdout: "installing nftables uidmap gcc libc6-dev\n",
				calls:  "apt-get update\napt-get install -y --no-install-recommends nftables uidmap gcc libc6-dev\n",
			},
		},
		"root without the network": {
			programs: map[string]string{"id": "root", "apt-get": "broken-apt-get"},
			needs:    []string{"nft", "gcc"},
			want: answer{
				code: 1, stdout: "installing nftables gcc libc6-dev\n",
				stderr: "E: no update today\napt-get update: exit status 100\n",
			},
		},
		"an ordinary user": {
			programs: map[string]string{"gcc": "program", "id": "user", "apt-get": "apt-get"},
			needs:    []string{"nft", "gcc"},
			want:     answer{code: 1, stderr: "missing: nft; run: sudo apt-get install -y nftables\n"},
		},
		"another distribution": {
			programs: map[string]string{"nft": "program", "id": "root"},
			needs:    []string{"nft", "gcc"},
			want:     answer{code: 1, stderr: "missing: gcc; run: sudo apt-get install -y gcc libc6-dev\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := prerequisites(t, test.programs, test.needs)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(answer{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

type answer struct {
	code                  int
	stdout, stderr, calls string
}

// prerequisites runs the script on a machine with these programs, given by name and by file in
// testdata/machine.
func prerequisites(t *testing.T, programs map[string]string, needs []string) answer {
	t.Helper()
	path := t.TempDir()
	for name, file := range programs {
		// A link, because another test's child may still have a newly written file open, and such a
		// file cannot be run.
		target, err := filepath.Abs(filepath.Join("testdata", "machine", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	calls, err := os.Create(filepath.Join(t.TempDir(), "calls"))
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	var stdout, stderr strings.Builder
	command := exec.CommandContext(t.Context(), ".ci/prerequisites", needs...)
	command.Env = []string{"PATH=" + path}
	command.Stdout, command.Stderr, command.ExtraFiles = &stdout, &stderr, []*os.File{calls}
	exit := (*exec.ExitError)(nil)
	if err := command.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	called, err := os.ReadFile(calls.Name())
	if err != nil {
		t.Fatal(err)
	}
	return answer{code: command.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String(), calls: string(called)}
}
