// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }

func newNamespace(t *testing.T) kernel.Namespace {
	t.Helper()
	namespace, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespace.Close() })
	return kernel.Of(namespace.File())
}
