// SPDX-License-Identifier: Apache-2.0

// Package installer puts the plugin on a node and takes it away again.
//
// What is on the node is kept right by three parts, each of which compares before it writes and can be asked again at any time:
// [Binaries], [Kubeconfig], and [Config], the plugin's place in the CNI configuration, which also takes away the note of an earlier
// uninstall; what the CNI configuration should be is package reconciler's to say. [Installer.Uninstall] goes the other way. They keep one
// order: the plugin is put into a configuration after the binary and the kubeconfig it needs, and leaves it before they do.
//
// What was done is recorded in a claim, a root-only file beside the binary. That directory, unlike /var/run, survives a reboot, and it
// isn't read by the container runtime as a configuration. The claim holds the original of a single .conf that had to become a list, so
// that a later process can give it back.
//
// Non-goals: asking the API server for anything, and deciding when to look again (package daemon does).
package installer
