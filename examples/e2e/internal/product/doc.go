// SPDX-License-Identifier: Apache-2.0

// Package product defines what the project ships: its image, with a bill of materials and
// checksums.
//
// # Goals
//
// All of it can be rebuilt from the sources, byte for byte.
//
// # Non-goals
//
// Building the binaries, which the Makefile does, and publishing.
package product
