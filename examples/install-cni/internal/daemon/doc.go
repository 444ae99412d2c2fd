// SPDX-License-Identifier: Apache-2.0

// Package daemon has the installer's parts look after the node, and tells how they are doing.
//
// When a part looks, and how long it waits, is package upkeep's: at the start, when something changed in a directory that concerns it, once
// more after it wrote something, after failures, and every ten minutes. The parts work at the same time: one that hangs, fails or
// panics keeps no other from its work. Their order matters only where one finds what another brings: the entry in the CNI
// configuration waits for binary and kubeconfig.
//
// Non-goals: knowing what a part does, and finding out who the other one is.
package daemon
