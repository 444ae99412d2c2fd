// SPDX-License-Identifier: Apache-2.0

// Package repairmeshtest has the mesh by which tests of repair judge pods. It is for tests only.
package repairmeshtest
