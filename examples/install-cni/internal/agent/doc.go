// SPDX-License-Identifier: Apache-2.0

// Package agent is the node agent: the daemon's sockets, and what plugins send there.
//
// # Goals
//
// Plugins learn about their pods at the socket agent.sock (docs/agent-socket.md), and leave their
// log lines and results there; Istio's older plugins leave log lines at log.sock. What plugins kept
// on the disk while there was no agent is collected as soon as it appears, without polling.
// Plugins' lines go into the daemon's own log, with the name of the pod and in a group of their
// own, so that no line can be taken for another program's.
//
// # Non-goals
//
// Knowing pods: the agent is given a source of pods. Keeping results: they are counted and logged.
package agent
