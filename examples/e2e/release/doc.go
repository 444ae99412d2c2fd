// SPDX-License-Identifier: Apache-2.0

// Command release makes the release files from the binaries that make build has left: the image for
// several architectures, as an OCI archive for containerd, skopeo and the like, a bill of materials
// for each architecture, and checksums of all files. It needs neither a registry nor a container
// runtime, and the same binaries make the same bytes.
//
//	release -version v1.2.3 -binaries bin -to bin/release
//
// # Non-goals
//
// Signing and publishing.
package main
