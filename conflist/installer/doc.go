// SPDX-License-Identifier: Apache-2.0

// Package installer puts a mesh's CNI plugin on a node, keeps it in place, and uninstalls it: the
// binary, the kubeconfig it needs, and its entry in the CNI configuration.
//
// # How to use it
//
// State what is installed, and where, in [Options]; most fields have a default. Then
//
//   - a daemon calls [Installer.Run], and logs the events ([Event]); an upgrade ends it by its
//     context, and the next version goes on;
//   - a daemon with a loop of its own calls [Installer.Attend], and then Ensure of each [Part]
//     whenever something changes;
//   - an init container, or a command, calls [Installer.Install];
//   - an uninstall calls [Installer.Uninstall], and nothing else does. With
//     [Installer.RequestUninstall] another process requests it of the daemon, which checks
//     [Installer.UninstallRequested] when it is stopped;
//   - a command that shows the current state, or what would be done, calls [Installer.Inspect] and
//     [Installer.InspectRemoval].
//
// # Laws
//
//   - Each part compares before it writes, and can be called again at any time. When everything is
//     in place nothing is written.
//   - The plugin is put into a configuration after the binary and the kubeconfig that it needs, and
//     is removed from it before they are.
//   - If kill -9 or a power cut interrupts a change, the next process finishes or undoes it.
//   - During an upgrade the old and the new daemon run at the same time. The newer one keeps the
//     node, and the older one writes nothing until the newer one has ended. One that is killed has
//     20 seconds for its next process to begin. The older one sees that on Linux, by a lock on a
//     byte of TYPE.lock, if that file has stayed in place. At every instant there is a valid
//     configuration that names the plugin, and an executable binary.
//   - An uninstall leaves a marker beside the binary (TYPE.uninstalled). The plugin must let every
//     pod pass when it finds the marker: the runtime may have read the configuration before it was
//     removed. An install removes the marker last.
//   - The binary stays as long as the removal of running pods needs it.
//   - The token is in the kubeconfig and nowhere else; no event and no error contains it.
//
// # Files on the node
//
// The installer records its work in a claim, a root-only file beside the binary. That directory
// survives a reboot, unlike /var/run, and the container runtime does not read it for
// configurations. The claim holds the original of a single .conf that had to become a list, so that
// a later process can restore it. An advisory lock on a file in that directory (TYPE.lock) keeps an
// uninstall and a daemon of the plugin apart. Plugins of other types, each with an installer of its
// own, may be on the same node.
//
// # Non-goals
//
// Requests to the API server. The meaning of the plugin's entry. Logging, metrics and health: the
// caller receives what happens as values. Package reconciler decides what the CNI configuration
// should be.
package installer
