// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReleaseEndsTheLockForCopiesToo has a copy of the descriptor around, as a process has between its fork and its exec.
func TestReleaseEndsTheLockForCopiesToo(t *testing.T) {
	t.Parallel()
	binDir := t.TempDir()
	daemon, _ := newTestInstaller(t, binDir)
	release, err := daemon.lock(t.Context(), shared)
	if err != nil {
		t.Fatal(err)
	}
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	copies := 0
	for _, d := range descriptors {
		if target, err := os.Readlink("/proc/self/fd/" + d.Name()); err != nil || target != binDir {
			continue
		}
		number, err := strconv.Atoi(d.Name())
		if err != nil {
			t.Fatal(err)
		}
		duplicate, err := unix.FcntlInt(uintptr(number), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(duplicate)
		copies++
	}
	release()
	if copies == 0 {
		t.Fatal("no descriptor of the directory was found to copy")
	}
	uninstall(t, binDir)
}
