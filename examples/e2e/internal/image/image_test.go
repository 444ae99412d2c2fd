// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/meshcni/meshcni/examples/e2e/internal/image"
)

func program(t *testing.T, text string, changed time.Time) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, changed, changed); err != nil {
		t.Fatal(err)
	}
	return name
}

// two returns one image for two architectures.
func two(t *testing.T, changed time.Time) []image.Image {
	t.Helper()
	var images []image.Image
	for _, architecture := range []string{"amd64", "arm64"} {
		images = append(images, image.Image{
			Architecture: architecture,
			Files: []image.File{
				{Path: "/usr/bin/b", Source: program(t, "b of "+architecture, changed)},
				{Path: "/opt/a", Source: program(t, "a of "+architecture, changed)},
			},
			Entrypoint: []string{"/usr/bin/b", "-x"}, User: "65532", Path: "/usr/bin", Labels: map[string]string{"b": "2", "a": "1"},
		})
	}
	return images
}

func TestArchiveIsReproducible(t *testing.T) {
	t.Parallel()
	var first, second bytes.Buffer
	if err := image.Archive(&first, "example.com/x:1", two(t, time.Unix(1, 0))...); err != nil {
		t.Fatal(err)
	}
	if err := image.Archive(&second, "example.com/x:1", two(t, time.Unix(1_000_000, 0))...); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same files make other bytes")
	}
}

func TestArchiveIsAnOCILayout(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	if err := image.Archive(&archive, "example.com/y/x:1", two(t, time.Unix(1, 0))...); err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	unpack(t, &archive, directory)
	index, err := layout.ImageIndexFromPath(directory)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["io.containerd.image.name"] != "example.com/y/x:1" {
		t.Fatalf("the archive has %+v", manifest.Manifests)
	}
	inner, err := index.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	platforms, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for i, architecture := range []string{"amd64", "arm64"} {
		if got := platforms.Manifests[i].Platform.String(); got != "linux/"+architecture {
			t.Errorf("image %d is for %s", i, got)
		}
		built, err := inner.Image(platforms.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, built, architecture)
	}
}

func checkImage(t *testing.T, built v1.Image, architecture string) {
	t.Helper()
	file, err := built.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if file.Config.User != "65532" || file.Config.Env[0] != "PATH=/usr/bin" || file.Config.Labels["a"] != "1" || file.Architecture != architecture {
		t.Errorf("configuration: %+v", file)
	}
	layers, err := built.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers: %v, %v", layers, err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	directory := t.TempDir()
	unpack(t, content, directory)
	text, err := os.ReadFile(filepath.Join(directory, "opt", "a"))
	if err != nil || string(text) != "a of "+architecture {
		t.Errorf("/opt/a: %q, %v", text, err)
	}
}

func TestArchiveRefuses(t *testing.T) {
	t.Parallel()
	if err := image.Archive(io.Discard, "example.com:80/x", image.Image{Architecture: "amd64"}); err == nil {
		t.Error("a name without a tag is taken")
	}
	missing := image.Image{Architecture: "amd64", Files: []image.File{{Path: "/x", Source: filepath.Join(t.TempDir(), "none")}}}
	if err := image.Archive(io.Discard, "example.com/x:1", missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that isn't there: %v", err)
	}
}

func unpack(t *testing.T, archive io.Reader, directory string) {
	t.Helper()
	reader := tar.NewReader(archive)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(filepath.Join(directory, header.Name), 0o755)
		} else {
			var text []byte
			if text, err = io.ReadAll(reader); err == nil {
				err = os.WriteFile(filepath.Join(directory, header.Name), text, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
