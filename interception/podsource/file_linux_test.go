// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestKubeconfigOfOthers: a kubeconfig that another user could have written, who could name an API
// server of theirs, is not used.
func TestKubeconfigOfOthers(t *testing.T) {
	t.Parallel()
	for want, mode := range map[string]fs.FileMode{"": 0o644, "other users may write to it: forbid that (chmod go-w)": 0o602, "-rw--w----": 0o620} {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(path, []byte(minimal(t)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := readKubeconfig(path)
		if (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", mode, err, want)
		}
	}
}

// TestKubeconfigThatIsAPipe: the plugin doesn't wait for the other end.
func TestKubeconfigThatIsAPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readKubeconfig(path); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("got error %v", err)
	}
}
