// SPDX-License-Identifier: Apache-2.0

// Package live keeps a running daemon's settings in step with the settings directory, and records
// them.
//
// A mounted ConfigMap changes all at once, when the kubelet replaces a link; there is no polling.
// Live settings take effect at once. Other changes and errors are logged once and are in the
// record, a file in the run directory that other processes print ("install-cni config --running").
//
// Non-goals: readiness. A bad value leaves the node as it was, and would make all nodes of a
// cluster unready at the same time.
package live
