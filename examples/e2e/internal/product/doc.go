// SPDX-License-Identifier: Apache-2.0

// Package product is what the project ships: its image, and the bill of materials and the sums that go along with it.
//
// # Goals
//
// Everything can be made again from the sources, byte for byte.
//
// # Non-goals
//
// Building the binaries, which is the Makefile's, and publishing anything.
package product
