// SPDX-License-Identifier: Apache-2.0

// Package golden reads the golden cases of interception/sidecar/testdata: a pod, the facts about
// its namespace, and packets. What follows from them (plan, text, traces) stands beside them, and
// two tests share them: one compares the texts, the other sends the packets for real.
//
// It is for meshcni's own tests, and has no other use.
package golden
