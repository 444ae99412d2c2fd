// SPDX-License-Identifier: Apache-2.0

package podnetns_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception/podnetns"
)

// startProcess starts a process in a network namespace of its own, which waits until it is killed.
func startProcess(t *testing.T) *exec.Cmd {
	t.Helper()
	process := exec.CommandContext(t.Context(), "cat")
	if _, err := process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(process) })
	return process
}

// end may be called twice.
func end(process *exec.Cmd) {
	_ = process.Process.Kill()
	_ = process.Wait()
}

// reuse starts a process with the id of one that has ended (proc_sys_kernel(5), ns_last_pid).
func reuse(t *testing.T, pid int) {
	t.Helper()
	for range 1000 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Fatal(err)
		}
		process := startProcess(t)
		if process.Process.Pid == pid {
			return
		}
		end(process)
	}
	t.Fatalf("process id %d isn't given again", pid)
}

// TestProcessIDReused: an opened process shows nothing of a later process with the same id, though
// the path leads to it.
func TestProcessIDReused(t *testing.T) {
	t.Parallel()
	first := startProcess(t)
	pid := first.Process.Pid
	opened, err := podnetns.OpenProcess("/proc", pid)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if err := opened.Look(); err != nil {
		t.Fatalf("while it lives: %v", err)
	}
	end(first)
	reuse(t, pid)
	if err := opened.Look(); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the directory of an ended process shows another: %v", err)
	}
	another, err := podnetns.OpenProcess("/proc", pid)
	if err != nil {
		t.Fatal(err)
	}
	defer another.Close()
	if err := another.Look(); err != nil {
		t.Errorf("the new one: %v", err)
	}
}
