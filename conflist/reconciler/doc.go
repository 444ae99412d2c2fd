// SPDX-License-Identifier: Apache-2.0

// Package reconciler keeps a plugin present in a directory of CNI configurations, and takes it away again without a trace.
//
//	bytes of the directory, claim ──Decide──▶ Plan ──▶ directory
//
// A mesh's plugin has to be in the one configuration that the container runtime uses, which is somebody else's: of an agent that may write it
// anew, rename it, or bring a better one at any time. There are several ways to get in, each a [Mode], and all leave every byte of others as
// it was. What [Decide] wants done is a value, made from what the directory holds and from the record of what was done before ([Claim]). It
// can be tested, and shown to people before anything happens; the way that was chosen, its reason, and whether the runtime will ask
// the plugin for its status are in it.
//
// # How to use it
//
// Say what is wanted ([Want]: the plugin's entry, and a mode), where (the directory), and where the claim is kept: a [ClaimFile], or a [Claims]
// of your own, if you keep a record already. Then
//
//   - a daemon calls [Reconciler.Run], and logs and counts the events; an upgrade ends it by its context, and the next version goes on;
//   - a daemon with a loop of its own calls [Reconciler.Ensure] whenever something changes;
//   - an init container, or a command, calls [Reconciler.Install];
//   - an uninstall calls [Reconciler.Remove], and nothing else does.
//
// The binary has to be in place before the entry is: have [Options].Ready say so. Two processes may keep one directory at once, as old and new
// do in a rolling update, when they share the claim; who of them is to write is theirs to settle.
//
// # Laws
//
//   - When everything is in place nothing is written, and while nothing changes nothing runs but one slow timer.
//   - At every instant there is a whole, valid configuration. While the plugin moves from one place to another, or its entry changes, it is in
//     the one that a runtime loads.
//   - What was undone by others is put back at once. If it is undone again and again, the observer is told by whom; a program that does so more
//     than twice a second, for more than ten times, has it put back twice a second.
//   - Whatever a crash or a power cut interrupts, the next process finishes or undoes.
//   - Remove gives back the directory byte for byte, with owners and permission bits, as far as nobody else has changed it since.
//   - A file that another program might be writing, or one that can't be understood, is left alone, with a reason.
//   - A symbolic link is followed as the runtime follows it, but not out of the directory. The link itself stays as it is.
//
// # Which mode
//
// [Splice] works everywhere, and needs the daemon whenever the owner of the list writes it. [Owned] survives that, and a reboot, and is for
// nodes where nobody removes the files of others. [DropIn] touches no file of others at all, and is the best where the runtime is known
// to have libcni 1.3. [Standalone] is for Multus. [Auto] chooses among the first three, and says why.
//
// # Non-goals
//
// The plugin's binary and credentials. Merging what several meshes want of one entry. Logging:
// what happens is told to an observer as values ([Event]).
package reconciler
