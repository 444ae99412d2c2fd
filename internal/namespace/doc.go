// SPDX-License-Identifier: Apache-2.0

// Package namespace runs code on a thread inside a network namespace, and makes namespaces for trials.
//
// # Goals
//
// No other code of the process ever runs in that namespace, whatever fails, and the descriptor stays open meanwhile.
//
// # Non-goals
//
// No namespaces are found or named here: the caller has one open.
package namespace
