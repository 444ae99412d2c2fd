// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// limitedUser is a user that has no other process. The kernel doesn't hold root to its limit of
// processes.
const limitedUser = 4242

// TestNoMoreProcesses runs the plugin with each limit of processes from one on: where the Go
// runtime can't start a thread, at its start or later, the container runtime gets an error of the
// specification, and no stacks.
func TestNoMoreProcesses(t *testing.T) {
	t.Parallel()
	for _, build := range []string{plugin(t), pluginWithIPTables(t)} {
		exhausted := 0
		for limit := 1; limit <= 8; limit++ {
			stdout, stderr := runWithProcesses(t, build, limit)
			var e errorResult
			if err := json.Unmarshal([]byte(stdout), &e); err != nil || e.Error == nil || e.Code == 0 {
				t.Fatalf("with %d processes: %v: got %s and %s", limit, err, stdout, stderr)
			}
			if strings.Contains(stderr, "goroutine") {
				t.Errorf("with %d processes it shows its stacks: %s", limit, stderr)
			}
			if e.Code != codeProcesses {
				continue // it needed no more, and failed at what that user may not do
			}
			exhausted++
			if !strings.Contains(e.Msg, "threads") || !strings.Contains(e.Details, "pids.max") {
				t.Errorf("got %s", stdout)
			}
		}
		if exhausted == 0 {
			t.Error("no limit kept the plugin from its work")
		}
	}
}

// runWithProcesses runs an ADD as a user that may have so many processes.
func runWithProcesses(t *testing.T, build string, limit int) (stdout, stderr string) {
	t.Helper()
	binary, err := os.Open(build) // in a directory that the user may not enter
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = binary.Close() }()
	n := newNode(t, pod(t))
	args := n.add()
	cmd := exec.CommandContext(t.Context(), "prlimit", fmt.Sprintf("--nproc=%d", limit), "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{binary}
	cmd.Env = append(environment("ADD", args), "PATH="+os.Getenv("PATH"))
	cmd.Stdin = bytes.NewReader(args.StdinData)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: limitedUser, Gid: limitedUser, NoSetGroups: true}}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("with %d processes: %v: %s%s", limit, err, &out, &errs)
	}
	return out.String(), errs.String()
}
