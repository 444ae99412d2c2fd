// SPDX-License-Identifier: Apache-2.0

// Package protocol is what both sides of the agent's socket have to agree on; docs/agent-socket.md
// has it all.
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
