// SPDX-License-Identifier: Apache-2.0

// Package fake has an [interception.Dataplane] in memory, for unit tests of code that uses one: a
// plugin, an agent, a repair loop.
//
// # Goals
//
// It keeps the laws of the interface to the letter (dataplanetest.Conformance tests it), on every
// operating system and without privileges: namespaces are handles from [Dataplane.Netns],
// distinguished by their ids. It records the calls ([Dataplane.Calls]), fails where a test wants it
// to ([Options]), and can be edited like a kernel by another process ([Dataplane.Edit]). It imports
// only the standard library and package interception.
//
// # Non-goals
//
// It has no packets: package trace predicts what a plan does to them, and package dataplanetest
// sends real ones. It knows no kernels and their limits: use [Options].Refuse for what a real
// dataplane lacks.
package fake
