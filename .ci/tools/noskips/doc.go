// SPDX-License-Identifier: Apache-2.0

// Noskips runs go test and fails when a test was skipped: where everything that the tests need is installed, a skip is a hole.
//
//	noskips [go test's flags and packages]
//
// It prints a line for each package that passed, and of one that failed everything that its tests said, those that passed
// included. Then it names each skipped test with its reason, and closes with a count:
//
//	skipped: example.com/a TestB: a_test.go:7: no such program
//	no test may be skipped: install what it needs, or take it out
//	11 passed, 0 failed, 1 skipped
//
// The exit code is 0 if at least one test passed, none failed and none was skipped.
package main
