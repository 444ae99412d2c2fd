// SPDX-License-Identifier: Apache-2.0

// Command install-cni is the daemon that installs the istio-cni plugin on a Kubernetes node and
// keeps it installed.
//
// It replaces Istio's install-cni in its DaemonSet, with the same flags, environment, paths, ports
// and files. README.md is its manual; install-cni --help is the short form.
//
// The program is this package, which parses the command line, and inner ones, among them settings,
// parts (which runs the others concurrently), installer (what is on the node), daemon (when to
// check it again), agent (the sockets for plugins), watcher (which starts the node-watcher),
// metrics, profiling, health (/healthz and /readyz), daemonset (whether it is still wanted) and
// nodetaint. Everything outside the program is reached through one struct, so that the tests call
// run as the system does.
//
// Everything that needs a watch of the API server is done by a child process, ../node-watcher: it
// knows the node's pods, and handles those that are not captured.
package main
