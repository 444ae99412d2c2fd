// SPDX-License-Identifier: Apache-2.0

package filesystem_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// TestWithin replaces the directory with a link, which may only lead below the outer one.
func TestWithin(t *testing.T) {
	t.Parallel()
	for target, leaves := range map[string]bool{"v2": false, "../outside": true, "/": true} {
		above := t.TempDir()
		outer := filepath.Join(above, "net.d")
		for _, directory := range []string{filepath.Join(outer, "v2"), filepath.Join(above, "outside")} {
			if err := os.MkdirAll(directory, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(directory, "net"), []byte("theirs"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(target, filepath.Join(outer, "v1")); err != nil {
			t.Fatal(err)
		}
		d := filesystem.Directory{Path: filepath.Join(outer, "v1"), Within: outer}
		for name, operate := range map[string]func() error{
			"stat":         func() error { _, err := d.Stat("net"); return err },
			"read":         func() error { _, err := d.Read("net", 100); return err },
			"write":        func() error { _, err := d.Write("new", []byte("ours"), filesystem.Options{}); return err },
			"replace":      func() error { _, err := d.Write("net", []byte("ours"), filesystem.Options{Like: "net"}); return err },
			"nudge":        d.Nudge,
			"sync":         d.Sync,
			"remove stale": func() error { _, err := d.RemoveStale(time.Now().Add(time.Hour)); return err },
			"expected":     func() error { _, err := d.RemoveExpected("other", []byte("theirs")); return err },
		} {
			if err := operate(); (err != nil) != leaves {
				t.Errorf("%s by a link to %s: %v", name, target, err)
			}
		}
		entries, err := os.ReadDir(filepath.Join(above, "outside"))
		content, readErr := fs.ReadFile(os.DirFS(above), "outside/net")
		if err != nil || readErr != nil || len(entries) != 1 || string(content) != "theirs" {
			t.Errorf("outside: %v, %v, %q, %v", entries, err, content, readErr)
		}
	}
}
