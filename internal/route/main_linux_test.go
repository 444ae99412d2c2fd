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
	return dialed(t, kernel.Of(newNamespace(t)))
}

// newNamespace returns an empty network namespace that lasts as long as the test.
func newNamespace(t *testing.T) *os.File {
	t.Helper()
	namespace, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespace.Close() })
	return namespace.File()
}
