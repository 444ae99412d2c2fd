// SPDX-License-Identifier: Apache-2.0

package interception

import "slices"

// Pod is the part of a Kubernetes Pod that decides about its traffic. It has no Kubernetes types in it: whoever has a Pod
// object copies these fields.
type Pod struct {
	// Namespace and Name identify the pod in its cluster at one time; UID for all times.
	Namespace, Name, UID string
	// Labels and Annotations are those of the pod's metadata.
	Labels, Annotations map[string]string
	// HostNetwork is spec.hostNetwork.
	HostNetwork bool
	// RunAsUser and RunAsGroup are those of spec.securityContext; nil when not set. They hold for containers that set none.
	RunAsUser, RunAsGroup *int64
	// Containers are the init containers in their order, then the regular ones in theirs; ephemeral ones are left out.
	Containers []Container
}

// Container is the part of a container that decides about its pod's traffic.
type Container struct {
	// Name is the container's name.
	Name string
	// Args are its arguments.
	Args []string
	// Env are its variables by name; a value taken from elsewhere (valueFrom) is "".
	Env map[string]string
	// RunAsUser and RunAsGroup are those of the container's securityContext; nil when not set.
	RunAsUser, RunAsGroup *int64
}

// Container returns the container of that name; of two, an init container and a regular one, the regular one.
func (p Pod) Container(name string) (Container, bool) {
	for _, c := range slices.Backward(p.Containers) {
		if c.Name == name {
			return c, true
		}
	}
	return Container{}, false
}
