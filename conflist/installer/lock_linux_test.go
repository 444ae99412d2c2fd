// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReleaseEndsTheLockForCopiesToo keeps a copy of the descriptor, as between fork and exec.
func TestReleaseEndsTheLockForCopiesToo(t *testing.T) {
	t.Parallel()
	binDir := t.TempDir()
	daemon, _ := newTestInstaller(t, binDir)
	held, err := daemon.holdAsDaemon(t.Context(), func() {})
	if err != nil {
		t.Fatal(err)
	}
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var locked []uintptr
	for _, d := range descriptors {
		target, err := os.Readlink("/proc/self/fd/" + d.Name())
		if err != nil || (target != binDir && filepath.Dir(target) != binDir) {
			continue
		}
		number, err := strconv.Atoi(d.Name())
		if err != nil {
			t.Fatal(err)
		}
		locked = append(locked, uintptr(number))
	}
	for _, number := range locked {
		duplicate, err := unix.FcntlInt(number, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(duplicate)
	}
	held.release()
	if len(locked) != 2 {
		t.Fatalf("%d descriptors were found to copy, want those of the directory and of the file in it", len(locked))
	}
	uninstall(t, binDir)
}
