// SPDX-License-Identifier: Apache-2.0

// Package golden reads the golden cases of interception/sidecar/testdata: a pod, the facts about
// its namespace, and packets, with the expected plan, text and traces. Two tests share them: one
// compares the texts, the other sends real packets.
//
// It is for meshcni's own tests only.
package golden
