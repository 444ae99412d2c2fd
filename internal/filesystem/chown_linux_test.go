// SPDX-License-Identifier: Apache-2.0

package filesystem

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

// TestWriteNamesTheCapabilityItLacks runs as root without CAP_CHOWN, as in a container that drops
// it; other users lack it anyway.
func TestWriteNamesTheCapabilityItLacks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := dropChown()
		if err == nil {
			_, err = Directory{Path: dir}.writeTemporary(root, "file", strings.NewReader("new"), 3, look{mode: 0o600, owner: &owner{12, 34}})
		}
		result <- err
	}()
	err = <-result
	if !errors.Is(err, ErrNoChown) || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "CAP_CHOWN") {
		t.Errorf("writeTemporary: %v, want ErrNoChown and fs.ErrPermission", err)
	}
	wantAlone(t, filepath.Join(dir, "file"))
}

func dropChown() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_CHOWN
	return unix.Capset(&header, &data[0])
}
