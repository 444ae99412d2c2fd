// SPDX-License-Identifier: Apache-2.0

// Package netfacts reads the [interception.Facts] of a network namespace.
//
// # Goals
//
// The facts are about what the namespace's kernel would do with a packet, not about its addresses
// or interfaces at the moment: more may come later, for example by SLAAC. A fact that cannot be
// read is an error, never a guess.
//
// # Non-goals
//
// It changes nothing and looks at no other namespace. The thread that enters the namespace returns
// to its own; if that fails, the thread ends.
package netfacts
