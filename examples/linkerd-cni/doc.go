// SPDX-License-Identifier: Apache-2.0

// Command linkerd-cni is this module's CNI plugin for pods with Linkerd's proxy: package
// interception/plugin with Linkerd's dialect and names. It shows how little a mesh has to write,
// and replaces Linkerd's own plugin on a node.
//
// README.md, beside this file, describes its entry in a CNI configuration.
//
// # Non-goals
//
// It reads no settings of Linkerd's chart: dialect.go contains the chart's defaults. Nothing here
// installs it.
package main
