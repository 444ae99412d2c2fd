// SPDX-License-Identifier: Apache-2.0

// Package installer puts a mesh's CNI plugin on a node, keeps it there, and takes it away again: the binary, the kubeconfig it needs, and its
// entry in the CNI configuration.
//
// # How to use it
//
// Say what is installed, and where ([Options]); most fields have a value of their own where they are left empty. Then
//
//   - a daemon calls [Installer.Run], and logs the events ([Event]); an upgrade ends it by its context, and the next version goes on;
//   - a daemon with a loop of its own calls [Installer.Attend], and then Ensure of each [Part] whenever something changes;
//   - an init container, or a command, calls [Installer.Install];
//   - an uninstall calls [Installer.Uninstall], and nothing else does. With [Installer.RequestUninstall] another process asks the daemon
//     for it, which looks at [Installer.UninstallRequested] when it is told to stop;
//   - a command that shows how things are, or what would be done, calls [Installer.Inspect] and [Installer.InspectRemoval].
//
// # Laws
//
//   - Each part compares before it writes, and can be asked again at any time. When everything is in place nothing is written.
//   - The plugin is put into a configuration after the binary and the kubeconfig that it needs, and leaves it before they do.
//   - Whatever kill -9 or a power cut interrupts, the next process finishes or undoes.
//   - During an upgrade old and new run at the same time. The newer one keeps the node, and the older one writes nothing until that one leaves;
//     there is no instant without a valid configuration that names the plugin, or without a binary that can be run.
//   - An uninstall leaves a note beside the binary (TYPE.uninstalled). The plugin must let every pod pass when it finds one: the runtime may
//     have read the configuration before it was removed. An install removes the note last.
//   - The binary stays for as long as running pods need it to be removed.
//   - The token is in the kubeconfig and nowhere else; no event and no error has it.
//
// # What is on the node
//
// What was done is recorded in a claim, a root-only file beside the binary. That directory, unlike /var/run, survives a reboot, and
// the container runtime doesn't read it for configurations. The claim holds the original of a single .conf that had to become a list, so
// that a later process can give it back. An advisory lock on a file there (TYPE.lock) keeps an uninstall and a daemon of the plugin apart.
// Plugins of other types, each with an installer of its own, may be on the same node.
//
// # Non-goals
//
// Asking the API server for anything. Knowing what the plugin's entry says. Logging, metrics and health: what happens is told as values.
// What the CNI configuration should be is package reconciler's to say.
package installer
