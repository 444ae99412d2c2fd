// SPDX-License-Identifier: Apache-2.0

// Command install-cni is the daemon that installs the istio-cni plugin on a Kubernetes node and
// keeps it installed.
//
// It replaces Istio's install-cni in its DaemonSet, with the same flags, environment, paths, ports
// and files. README.md is its manual; install-cni --help is the short form.
//
// The program is this package, which parses the command line, and inner ones: settings, which
// reads the settings and follows their directory; parts, which runs the daemon's parts
// concurrently; installed, which decides when to look again at what package conflist/installer
// installed; agent, which serves the sockets for plugins; watcher, which starts the node-watcher;
// mounts, which detects that a mounted directory was replaced on the node; metrics; health, which
// answers /healthz and /readyz; daemonset, which learns whether the daemon is still wanted; and
// apiserver, which sends single requests. Everything outside the program is reached through one
// struct, so that the tests call run as the system does.
//
// Everything that needs a watch of the API server is done by a child process, ../node-watcher: it
// knows the node's pods, and handles those that are not captured.
package main
