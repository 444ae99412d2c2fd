// SPDX-License-Identifier: Apache-2.0

// Package sandbox re-runs the current process in fresh namespaces, so that privileged work needs no
// root and never touches the host: tests of a dataplane, and the demonstration.
//
//	outside                          inside (new PID, mount and network namespace; a user namespace unless root)
//	Enter --clone--> pid 1: reaps orphans, hands on signals
//	  |                 `--exec--> Enter: mounts /proc, lo up, returns Inside
//	  `- waits, hands on signals, returns the exit code
//
// A process inside is root there: uid 0 is the caller, and with newuidmap(1) and subordinate ids
// (subuid(5)) the ids from 1 on exist too. /proc is the sandbox's own, so that the network
// namespace of process 1, which the product takes for the host's, is the sandbox's. When the
// process outside dies, however it dies, everything inside dies with it.
//
// # Goals
//
// One call at the top of main or TestMain is enough; arguments, files, exit code and signals behave
// as without a sandbox (including go test with -race, -cover, -fuzz and time-outs). Where the
// system forbids a sandbox, the error names the setting and the one command that helps.
//
// # Non-goals
//
// This is no security boundary: files and everything else without a namespace of its own here
// belong to the host.
package sandbox
