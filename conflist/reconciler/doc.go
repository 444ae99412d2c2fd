// SPDX-License-Identifier: Apache-2.0

// Package reconciler keeps a plugin present in a directory of CNI configurations, and removes it
// again without a trace.
//
//	bytes of the directory, claim ──Decide──▶ Plan ──▶ directory
//
// A mesh's plugin must be in the one configuration that the container runtime uses. That file
// belongs to another program, an agent that may rewrite it, rename it, or add a better one at any
// time. There are several ways to install the plugin, each a [Mode], and all preserve every byte of
// other programs. [Decide] returns a value, a plan made from the directory's content and from the
// record of what was installed ([Claim]). It can be tested, and shown to the operator before
// anything happens. It includes the chosen mode, the reason, and whether the runtime will ask the
// plugin for its status.
//
// # How to use it
//
// State what is wanted ([Want]: the plugin's entry, and a mode), where (the directory), and where
// the claim is kept ([Claims]). Then
//
//   - a daemon calls [Reconciler.Ensure] whenever something changes;
//   - an init container, or a command, calls [Reconciler.Install];
//   - an uninstall, and no other program, calls [Reconciler.Remove].
//
// The binary must be in place before the entry is. Two processes may keep one directory at once, as
// the old and the new one do in a rolling update, if they share the claim; they must settle between
// themselves which of them writes. Package installer does all of that: its daemon watches the
// directory, restores the plugin, and keeps the claim.
//
// # Laws
//
//   - When everything is in place nothing is written.
//   - At every instant the directory has a complete, valid configuration. While the plugin moves
//     from one place to another, or its entry changes, the configuration that a runtime loads has
//     it.
//   - What other programs undo is restored, and the plan names the program, as far as the files
//     show it.
//   - If a crash or a power cut interrupts a change, the next process finishes or undoes it.
//   - Remove restores the directory byte for byte, with owners and permission bits, except for what
//     another program has changed since.
//   - A file that another program might be writing, or that cannot be parsed, stays unchanged, and
//     the plan has the reason.
//   - A symbolic link is followed as the runtime follows it, but not out of the directory. The link
//     itself stays unchanged.
//
// # Which mode
//
// [Splice] works everywhere, but needs the daemon whenever the owner of the list writes it. [Owned]
// survives that, and a reboot, and is for nodes where no program removes the files of others.
// [DropIn] touches no other program's file, and is the best where the runtime is known to have
// libcni 1.3. [Standalone] is for Multus. [Auto] chooses among the first three, and records the
// reason.
//
// # Non-goals
//
// The plugin's binary and credentials. Merging what several meshes want of one entry. Watching and
// logging: the caller receives plans.
package reconciler
