// SPDX-License-Identifier: Apache-2.0

// Package feed carries what a node's agent must know of its pods from the process that asks the API
// server to the process of the agent, over a unix socket, and the agent's status annotations back.
package feed
