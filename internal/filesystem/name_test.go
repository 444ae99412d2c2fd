// SPDX-License-Identifier: Apache-2.0

package filesystem_test

import (
	"errors"
	"testing"

	"github.com/meshcni/meshcni/internal/filesystem"
)

func TestNewNames(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", ".", "..", "/", "/a", "a/b", "a/", " ", "a b", "a\tb", "a\x00b", "a\n", "a\xff\u200b"} {
		if err := filesystem.CheckNewName(bad); !errors.Is(err, filesystem.ErrName) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	for _, good := range []string{"my-mesh-cni", "my-mesh-cni.claim", "..a", "é"} {
		if err := filesystem.CheckNewName(good); err != nil {
			t.Error(err)
		}
	}
}
