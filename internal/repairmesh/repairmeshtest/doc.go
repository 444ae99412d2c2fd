// SPDX-License-Identifier: Apache-2.0

// Package repairmeshtest has the mesh that tests of repair judge pods by. It is for tests alone.
package repairmeshtest
