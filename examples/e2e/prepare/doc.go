// SPDX-License-Identifier: Apache-2.0

// Command prepare builds what the end-to-end tests need, and prints its steps: Kubernetes and
// containerd, unless they are cached, and archives of images from the binaries that make build has
// left. The tests themselves have no network.
//
//	prepare -binaries ../../bin/e2e
//
// # Non-goals
//
// Building the product, which the Makefile does; downloading images.
package main
