// SPDX-License-Identifier: Apache-2.0

// Command demo shows the main job of meshcni on one machine: the daemon installs the plugin, and
// the plugin captures a pod's traffic.
//
//	go run ./examples/demo               a pod as an injector makes it (pod.yaml)
//	POD=my-pod.yaml go run ./examples/demo
//
// It needs Linux and Go, but no cluster, no other programs and no root. The daemon, the plugin,
// libcni (the code by which container runtimes run plugins), the CNI project's network plugins, the
// processes with their user ids and every connection are real. Only two parts are stand-ins: the
// API server, which serves one pod, and the programs of the pod's containers, which answer each
// connection with what they see.
//
//	demo ── builds the binaries, then runs itself again in a sandbox (package
//	  │     internal/testing/sandbox) and makes
//	  ├─ a node: directories for CNI's configuration, binaries, cache and run-time files, and
//	  │  addresses that represent the world
//	  ├─ an API server that serves the pod     ◀─── token ─────┐
//	  ├─ install-cni ── writes ── conflist, kubeconfig ──▶ istio-cni, run by libcni
//	  │                                                        │  after bridge and host-local
//	  └─ a pod: application, proxy                             │
//	        └─ connections, with package trace's ◀── rules ────┘
//	           prediction for each
//
// # Goals
//
// Every connection is shown twice: as the plan predicts it and as the kernel made it, with the rule
// that decides and the reason for that rule. The exit code is not 0 if the two differ, if the
// daemon does not restore the node's configuration after another program spoils it, or if the
// uninstall does not give it back byte for byte. Nothing outside a temporary directory is changed.
//
// # Non-goals
//
// Performance, several pods, and anything that a mesh does beyond capture: the stand-in proxy
// forwards nothing.
package main
