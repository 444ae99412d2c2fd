// SPDX-License-Identifier: Apache-2.0

// Package journal keeps what a plugin applied for each attachment, as long as its container lives: the baseline that a CHECK, a repair
// or an operator compares the kernel with. Annotations are no such baseline: whoever may edit a pod must not be able to have root
// widen its exclusions afterwards.
//
//	ADD    dataplane.Apply, then Journal.Write
//	CHECK  Journal.Read, dataplane.Observe, interception.Diff
//	DEL    Journal.Remove
//	GC     Journal.Keep
//
// A journal is a directory of files, one for an attachment, in JSON. Its place is the node's /run: a reboot takes it away, together with
// the containers. Package repair/inplace finds pods by it, and writes what it has repaired.
//
// # Goals
//
// A record is there whole or not at all, after a crash too. Only its owner reads and writes it, who is root. What is read is bounded and
// checked as anything from outside: a damaged record is an error, and never half of a plan. A plugin is started for each pod, so the
// package is small.
//
// # Non-goals
//
// It is no log: of an attachment it knows the last ADD only. It looks at no namespace and no pod.
package journal
