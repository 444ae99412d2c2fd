// SPDX-License-Identifier: Apache-2.0

// Package namespace runs code on a thread inside a network namespace, and makes namespaces for
// trials.
//
// # Goals
//
// No other code of the process ever runs in that namespace, whatever fails. The descriptor stays
// open meanwhile.
//
// # Non-goals
//
// The package does not find or name namespaces: the caller has one open.
package namespace
