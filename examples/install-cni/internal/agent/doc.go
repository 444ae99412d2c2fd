// SPDX-License-Identifier: Apache-2.0

// Package agent is what the daemon is to the plugins on its node: its sockets, and what they tell it.
//
// # Goals
//
// Plugins learn about their pods at the socket agent.sock (docs/agent-socket.md), and leave their log lines and results there; Istio's older
// plugins leave log lines at log.sock. What plugins kept on the disk while there was no agent is collected when it appears, without
// looking for it from time to time. Plugins' lines are in the daemon's own log, with the name of the pod and under a group of their
// own, so that no line can pass for another one's.
//
// # Non-goals
//
// Knowing pods: that is the affair of the source it is given. Keeping results: they are counted and logged.
package agent
