// SPDX-License-Identifier: Apache-2.0

// Command install-cni is the daemon that puts the istio-cni plugin on a Kubernetes node and keeps it there.
//
// It takes the place of Istio's install-cni in its DaemonSet, with the same flags, environment, paths, ports and files. README.md is its
// manual; install-cni --help is the short form.
//
// The program is this package, which reads the command line, and inner ones, among them settings (what it can be told), parts (which runs the
// others side by side), installer (what is on the node), daemon (when to look at it again), agent (the sockets for plugins), watcher (which
// starts node-watcher), metrics, profiling, health (/healthz and /readyz), daemonset (whether it is still wanted) and nodetaint. Everything
// that touches the world comes in through one struct, so that the tests call run as the system does.
//
// What needs a watch of the API server is done by a process of its own, ../node-watcher, which this one starts: it knows the node's pods,
// and looks after those that are not captured.
package main
