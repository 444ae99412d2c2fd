// SPDX-License-Identifier: Apache-2.0

// Command linkerd-cni is the CNI plugin of this module for pods with Linkerd's proxy: package interception/plugin with Linkerd's dialect and
// names. It shows how little a mesh has to write, and takes the place of Linkerd's own plugin on a node.
//
// README.md, beside this file, says what to put into a CNI configuration.
//
// # Non-goals
//
// It reads no settings of Linkerd's chart: what the chart sets is written in dialect.go. Nothing here installs it.
package main
