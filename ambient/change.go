// SPDX-License-Identifier: Apache-2.0

package ambient

// Change is news of the pods of a node and of their namespaces, from whatever knows them to the
// node's agent. The zero value tells nothing.
type Change struct {
	// Namespaces and Pods are new or have changed. Namespaces come no later than their pods.
	Namespaces []Namespace
	Pods       []Pod
	// Gone are the UIDs of pods that do not exist any more.
	Gone []string
	// Complete reports that with this change all pods of the node have been told. Before, a pod that
	// was not told may exist.
	Complete bool
}
