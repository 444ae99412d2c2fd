// SPDX-License-Identifier: Apache-2.0

// Command demo shows the main job of meshcni on one machine: a pod's traffic is captured by the plugin that the daemon installed.
//
//	go run ./examples/demo               a pod as an injector makes it (pod.yaml)
//	POD=my-pod.yaml go run ./examples/demo
//
// It needs Linux and Go; no cluster, no other programs, no root. What is real: the daemon, the plugin, libcni (the code by which
// container runtimes run plugins), the network plugins of the CNI project, the processes with their user ids, and every
// connection. What stands in: the API server, which knows one pod, and the programs of the pod's containers, which answer each
// connection with what they see.
//
//	demo ── builds the binaries, then runs itself again in a sandbox (internal/sandbox), where it makes
//	  │
//	  ├─ a node: directories for CNI's configuration, binaries, cache and run-time files, and addresses that stand for the world
//	  ├─ an API server that hands out the pod                 ◀─── token ───┐
//	  ├─ install-cni, the process ── writes ── conflist, kubeconfig ──▶ istio-cni, run by libcni behind bridge and host-local
//	  └─ a pod: application, proxy                                             │
//	        └─ connections, each beside what package trace expected ◀── rules ─┘
//
// # Goals
//
// Every connection is shown twice, as expected of the plan and as the kernel made it, with the rule that decides and why it is
// there; the exit code is not 0 when one differs, or when the node's configuration isn't restored when somebody spoils it, or isn't
// given back to the byte. Nothing of it touches the machine beyond a temporary directory.
//
// # Non-goals
//
// Performance, several pods, and anything of a mesh beyond capture: the stand-in proxy forwards nothing.
package main
