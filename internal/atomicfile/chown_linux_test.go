// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWriteNamesTheCapabilityItLacks is root without CAP_CHOWN, as in a container that drops it; who isn't root lacks it anyway.
func TestWriteNamesTheCapabilityItLacks(t *testing.T) {
	t.Parallel()
	dir, model := t.TempDir(), "/etc/passwd" // root's, for who isn't
	if os.Geteuid() == 0 {
		model = filepath.Join(dir, "model")
		writeFile(t, model, "old", 0o644)
		if err := os.Chown(model, 12, 34); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "file")
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := dropChown()
		if err == nil {
			_, err = Write(path, []byte("new"), Options{Like: model})
		}
		result <- err
	}()
	err := <-result
	if !errors.Is(err, ErrNoChown) || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "CAP_CHOWN") {
		t.Errorf("Write: %v, want ErrNoChown and fs.ErrPermission", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
	wantAlone(t, path)
}

// dropChown takes CAP_CHOWN from this thread.
func dropChown() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_CHOWN
	return unix.Capset(&header, &data[0])
}
