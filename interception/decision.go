// SPDX-License-Identifier: Apache-2.0

package interception

// Decision reports whether a mesh captures a pod, and why.
type Decision struct {
	Capture bool
	// Reason names the test that decided.
	Reason Reason
	// Detail may name what the test found: a namespace, a container, or a key with its value.
	Detail string
	// OfPod reports that an edit of a running pod can cause the decision. Such an edit does not
	// change the rules in the pod's namespace, which date from the pod's start.
	OfPod bool
}

// String returns the reason with its detail.
func (d Decision) String() string {
	if d.Detail == "" {
		return string(d.Reason)
	}
	return string(d.Reason) + " (" + d.Detail + ")"
}

// Reason names what decided about a pod. The texts are stable: logs and metrics use them.
type Reason string
