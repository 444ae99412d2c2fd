// SPDX-License-Identifier: Apache-2.0

package kubeconfig_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/kubeconfig"
)

func TestCheckMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []fs.FileMode{0o400, 0o440, 0o600, 0o640} {
		if err := kubeconfig.CheckMode(mode); err != nil {
			t.Errorf("%#o: %v", mode, err)
		}
	}
	for mode, octal := range map[fs.FileMode]string{
		0: "0 in", 0o200: "0200", 0o240: "0240", 0o604: "0604", 0o620: "0620", 0o644: "0644", 0o666: "0666", 0o700: "0700", 0o1600: "01600",
		fs.ModeSetuid | 0o600: "040000600", // as package fs writes it
	} {
		if err := kubeconfig.CheckMode(mode); err == nil || !strings.Contains(err.Error(), "it is "+octal) || !strings.Contains(err.Error(), "holds a token") {
			t.Errorf("%#o: %v", mode, err)
		}
	}
}
