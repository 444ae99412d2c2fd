// SPDX-License-Identifier: Apache-2.0

package product

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/meshcni/meshcni/examples/e2e/internal/image"
)

// Release describes what to ship.
type Release struct {
	// Version is the product's version and the image's tag.
	Version string
	// Name is the image's name, with the registry and without a tag.
	Name string
	// Binaries is a directory with a subdirectory of binaries for each platform of the image:
	// linux-amd64 and so on.
	Binaries string
	// Architectures are the image's architectures.
	Architectures []string
	// Directory receives the archive, the bills of materials and SHA256SUMS. Other files in it are
	// summed too.
	Directory string
}

// Write writes the archive of the image, a bill of materials for each architecture, and the
// checksums of all files in the directory.
func (r Release) Write() error {
	if err := os.MkdirAll(r.Directory, 0o755); err != nil {
		return err
	}
	var images []image.Image
	for _, architecture := range r.Architectures {
		binaries := filepath.Join(r.Binaries, "linux-"+architecture)
		built := Image(architecture, binaries, r.Version)
		images = append(images, built)
		err := r.write("sbom-linux-"+architecture+".cdx.json", func(w io.Writer) error {
			var files []string
			for _, file := range built.Files {
				files = append(files, file.Source)
			}
			return WriteBill(w, r.Version, files...)
		})
		if err != nil {
			return err
		}
	}
	err := r.write("image.oci.tar", func(w io.Writer) error { return image.Archive(w, r.Name+":"+r.Version, images...) })
	if err != nil {
		return err
	}
	return r.sum()
}

// sum writes SHA256SUMS, for sha256sum --check.
func (r Release) sum() error {
	const sums = "SHA256SUMS"
	entries, err := os.ReadDir(r.Directory)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, entry := range entries {
		if entry.Name() == sums || !entry.Type().IsRegular() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(r.Directory, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return os.WriteFile(filepath.Join(r.Directory, sums), []byte(text.String()), 0o644)
}

func (r Release) write(name string, content func(io.Writer) error) error {
	file, err := os.Create(filepath.Join(r.Directory, name))
	if err != nil {
		return err
	}
	if err := content(file); err != nil {
		_ = file.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	return file.Close()
}

// Image returns install-cni's image for an architecture, from the static binaries in a directory.
// It has no shell and no iptables. The few kernels that need iptables need an image built on this
// one with the programs of packages iptables and util-linux (for nsenter).
//
// The daemon writes root's files, so it runs as root, the default.
func Image(architecture, binaries, version string) image.Image {
	at := func(path string) image.File {
		return image.File{Path: path, Source: filepath.Join(binaries, filepath.Base(path))}
	}
	return image.Image{
		Architecture: architecture,
		Files: []image.File{
			at("/usr/local/bin/install-cni"), at("/usr/local/bin/node-watcher"), at("/usr/local/bin/node-ambient"),
			at("/usr/local/bin/mesh-validator"),
			at("/opt/cni/bin/istio-cni"), at("/opt/cni/bin/istio-cni-iptables"),
		},
		Entrypoint: []string{"/usr/local/bin/install-cni"},
		Path:       "/usr/local/bin",
		Labels: map[string]string{
			"org.opencontainers.image.title":       "install-cni",
			"org.opencontainers.image.description": "Captures the traffic of pods for a service mesh, by a CNI plugin that a node daemon installs.",
			"org.opencontainers.image.source":      "https://github.com/meshcni/meshcni",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.version":     version,
		},
	}
}

// TestReference returns the full name of an image that only the end-to-end tests use. No registry
// has it.
func TestReference(name, tag string) string { return "docker.io/meshcni-e2e/" + name + ":" + tag }
