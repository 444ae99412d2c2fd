// SPDX-License-Identifier: Apache-2.0

// Command release makes what is shipped of binaries that make build has left: the image for several architectures, as an OCI archive which
// containerd, skopeo and the like take, a bill of materials for each architecture, and the sums of it all. It needs neither a registry
// nor a container runtime, and the same binaries make the same bytes.
//
//	release -version v1.2.3 -binaries bin -to bin/release
//
// # Non-goals
//
// Signing and publishing.
package main
