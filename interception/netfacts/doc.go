// SPDX-License-Identifier: Apache-2.0

// Package netfacts finds out the [interception.Facts] about a network namespace.
//
// # Goals
//
// The answer is about what the namespace's kernel would do with a packet, and not about the addresses that happen to be there at
// this moment: they come later, by SLAAC for example, and so do interfaces. What can't be found out is an error, never a guess.
//
// # Non-goals
//
// It changes nothing, and looks at no other namespace: the thread that enters is given back, or thrown away when that fails.
package netfacts
