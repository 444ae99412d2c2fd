// SPDX-License-Identifier: Apache-2.0

// Package fake has an [interception.Dataplane] in memory, for unit tests of code that uses one: a
// plugin, an agent, a repair loop.
//
// # Goals
//
// It keeps the laws of the interface to the letter (dataplanetest.Conformance holds it to them), on
// every operating system and without privileges: namespaces are handles made by [Dataplane.Netns],
// and told apart by their ids. It remembers the calls ([Dataplane.Calls]), fails where a test wants
// it to ([Options]), and can be tampered with behind its user's back ([Dataplane.Edit]). An
// importer compiles the standard library and package interception only.
//
// # Non-goals
//
// There are no packets: package trace says what a plan does to them, and package dataplanetest
// sends real ones. It knows nothing of kernels and their limits: what a real dataplane lacks is for
// [Options].Refuse to say.
package fake
