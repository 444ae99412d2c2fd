// SPDX-License-Identifier: Apache-2.0

package filesystem_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// owned is a file of a user.
type owned struct {
	fs.FileInfo
	uid uint32
}

// Sys is what stat(2) says.
func (o owned) Sys() any { return &syscall.Stat_t{Uid: o.uid} }

func TestTrustedOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	self := uint32(os.Geteuid())
	for uid, want := range map[uint32]bool{0: true, self: true, self + 1: false, 65534: self == 65534} {
		if err := filesystem.CheckTrusted("file", owned{info, uid}); (err == nil) != want {
			t.Errorf("of %d, as %d: %v", uid, self, err)
		}
	}
}
