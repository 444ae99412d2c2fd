// SPDX-License-Identifier: Apache-2.0

// Package protocol has what both sides of the agent's socket must agree on. docs/agent-socket.md
// describes it.
//
// # Goals
//
// A change of a path, a bound or a reason changes the client and the server at once.
//
// # Non-goals
//
// What a caller sees of the protocol (log lines, results, the agent's state) are types of
// podsource.
package protocol
