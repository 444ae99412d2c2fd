// SPDX-License-Identifier: Apache-2.0

package route

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func TestMain(m *testing.M) {
	kernel.Explain()
	os.Exit(sandbox.RunTests(m))
}

func newSocket(t *testing.T) *Socket {
	t.Helper()
	namespace, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespace.Close() })
	s, err := Dial(kernel.Of(namespace.File()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
