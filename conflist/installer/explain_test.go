// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/internal/filesystem"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err       error
		says, not string
	}{
		"missing":    {syscall.ENOENT, "mount the node's directory", "root"},
		"read-only":  {syscall.EROFS, "keeps its CNI files elsewhere", "root"},
		"permission": {fs.ErrPermission, "has to run as root", "CAP_CHOWN"},
		"capability": {fmt.Errorf("%w; %w", syscall.EPERM, filesystem.ErrNoChown), "CAP_CHOWN", "has to run as root"},
		"other":      {syscall.EIO, "input/output error", "root"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text := explain(test.err).Error(); !strings.Contains(text, test.says) || strings.Contains(text, test.not) {
				t.Errorf("explain = %q, want %q and not %q", text, test.says, test.not)
			}
		})
	}
}
