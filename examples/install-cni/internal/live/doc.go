// SPDX-License-Identifier: Apache-2.0

// Package live keeps a running daemon's settings in step with the settings directory, and leaves word of them.
//
// A mounted ConfigMap changes all at once, when the kubelet exchanges a link; nothing is looked at in between. What may change takes effect
// at once; what can't, and what is wrong, is logged once and stands in the record, a file in the run directory that other
// processes print ("install-cni config --running").
//
// Non-goals: readiness. A bad value leaves the node as it was, and would make all nodes of a cluster unready at the same time.
package live
