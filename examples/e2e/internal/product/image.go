// SPDX-License-Identifier: Apache-2.0

package product

import (
	"path/filepath"

	"github.com/meshcni/meshcni/examples/e2e/internal/image"
)

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
