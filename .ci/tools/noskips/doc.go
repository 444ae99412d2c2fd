// SPDX-License-Identifier: Apache-2.0

// Noskips runs go test and fails if a test was skipped. Where everything that the tests need is
// installed, a skip is a hole.
//
//	noskips [go test's flags and packages]
//
// It prints one line for each package that passed, and the whole output of each package that
// failed, passed tests included. Then it lists each failed test with the last lines that it
// printed, and each skipped test with its reason, and closes with a count:
//
//	failed: example.com/a TestC
//	    a_test.go:9: got 1, want 2
//	skipped: example.com/a TestB: a_test.go:7: no such program
//	no test may be skipped: install what it needs, or take it out
//	11 passed, 1 failed, 1 skipped
//
// The exit code is 0 if at least one test passed, none failed and none was skipped.
package main
