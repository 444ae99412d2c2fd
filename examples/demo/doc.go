// SPDX-License-Identifier: Apache-2.0

// Command demo shows the main job of meshcni on one machine: the daemon installs the plugin, and
// the plugin captures a pod's traffic. Then it shows two pods in ambient mode.
//
//	go run ./examples/demo               a pod as an injector makes it (pod.yaml)
//	POD=my-pod.yaml go run ./examples/demo
//
// It needs Linux and Go, but no cluster, no other programs and no root. The daemon, the plugin,
// node-ambient, libcni (the code by which container runtimes run plugins), the CNI project's
// network plugins, the processes with their user ids and every connection are real. Four parts are
// stand-ins: the API server, which serves the pods; the programs of the pods' containers, which
// answer each connection with what they see; node-watcher, which tells node-ambient of the pods;
// and the node's proxy, the stand-in of package ambienttest.
//
//	demo ── builds the binaries, then runs itself again in a sandbox (package
//	  │     internal/testing/sandbox) and makes
//	  ├─ a node: directories for CNI's configuration, binaries, cache and run-time files, and
//	  │  addresses that represent the world
//	  ├─ an API server that serves the pod     ◀─── token ─────┐
//	  ├─ install-cni ── writes ── conflist, kubeconfig ──▶ istio-cni, run by libcni
//	  │                                                        │  after bridge and host-local
//	  ├─ a pod: application, proxy                             │
//	  │     └─ connections, with package trace's ◀── rules ────┘
//	  │        prediction for each
//	  └─ three pods without a sidecar, the last of which opts out of ambient mode
//	        └─ connections, likewise             ◀── rules ──── node-ambient ◀── feed, proxy
//
// # Ambient mode
//
// The three pods run outside the mesh. Their Kubernetes namespace gets the label of ambient mode
// and loses it again, and node-ambient enrols and withdraws two of them. Connections are made in
// both states. One was opened before the enrolment, and another one while the pods were enrolled;
// both are used until the end. The table tells at which ports the proxy took a connection, which
// the kernel's list of sockets shows, and which client the application saw.
//
// # Goals
//
// Every connection is shown twice: as the plan predicts it and as the kernel made it, with the rule
// that decides and the reason for that rule. The exit code is not 0 if the two differ, if
// node-ambient leaves a rule in a withdrawn pod, if the daemon does not restore the node's
// configuration after another program spoils it, or if the uninstall does not give it back byte for
// byte. Nothing outside a temporary directory is changed.
//
// # Non-goals
//
// Performance, and anything that a mesh does beyond capture: the stand-in for the sidecar forwards
// nothing, and the one for the node's proxy encrypts nothing.
package main
