// SPDX-License-Identifier: Apache-2.0

// Package journal records what a plugin applied for each attachment, as long as its container
// lives. A CHECK, a repair or an operator compares the kernel with the record. Annotations cannot
// be that baseline: a user who may edit a pod must not be able to make root widen the pod's
// exclusions afterwards.
//
//	ADD    dataplane.Apply, then Journal.Write
//	CHECK  Journal.Read, dataplane.Observe, interception.Diff
//	DEL    Journal.Remove
//	GC     Journal.Keep
//
// A journal is a directory of JSON files, one for each attachment. It belongs in the node's /run,
// which a reboot clears along with the containers. Package podnetns finds pods by it, and
// package repair/inplace writes what it has repaired.
//
// # Goals
//
// A record is complete or missing, even after a crash. Only its owner, root, reads and writes it.
// Records are bounded and checked like any untrusted input: a damaged record is an error, never
// half a plan. A plugin starts for each pod, so this package is small.
//
// # Non-goals
//
// It is not a log: it has only the last ADD of an attachment. It looks at no namespace and no pod.
package journal
