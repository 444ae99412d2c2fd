// SPDX-License-Identifier: Apache-2.0

//go:build race

package ambientsoak

// raced reports that the test runs with the race detector. The programs then do, too.
const raced = true
