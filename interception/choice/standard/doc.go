// SPDX-License-Identifier: Apache-2.0

// Package standard makes candidates for package choice from this module's two dataplanes.
//
// It is separate because it links both. A program that uses only one of them, such as a small CNI
// plugin, needs package choice without the other.
//
// A third dataplane of this module gets an entry in the list of candidates. Package
// internal/backend says what it implements. A program can also pass a dataplane of its own to
// package choice, next to these candidates.
package standard
