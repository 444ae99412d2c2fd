// SPDX-License-Identifier: Apache-2.0

package product_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/product"
)

func release(t *testing.T) string {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	binaries, directory := t.TempDir(), t.TempDir()
	for _, architecture := range []string{"amd64", "arm64"} {
		for _, file := range product.Image(architecture, filepath.Join(binaries, "linux-"+architecture), "v1").Files {
			if err := os.MkdirAll(filepath.Dir(file.Source), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file.Source, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := product.Release{
		Version: "v1", Name: "example.com/install-cni", Binaries: binaries, Architectures: []string{"amd64", "arm64"}, Directory: directory,
	}
	if err := r.Write(); err != nil {
		t.Fatal(err)
	}
	return directory
}

func TestReleaseIsReproducible(t *testing.T) {
	t.Parallel()
	first, second := release(t), release(t)
	for _, name := range []string{"image.oci.tar", "sbom-linux-amd64.cdx.json", "sbom-linux-arm64.cdx.json", "SHA256SUMS"} {
		a, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(second, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(a) != string(b) {
			t.Errorf("%s: other bytes of the same binaries", name)
		}
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = first
	if said, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, said)
	}
}
