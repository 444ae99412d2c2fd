// SPDX-License-Identifier: Apache-2.0

package interception

import "slices"

// Pod is the part of a Kubernetes Pod that decides about its traffic. It has no Kubernetes types in it: whoever has a Pod
// object copies these fields. As JSON it is an object of its own, flat, with the names of Kubernetes; what is empty is left out.
type Pod struct {
	// Namespace and Name identify the pod in its cluster at one time; UID for all times.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Labels and Annotations are those of the pod's metadata.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// HostNetwork is spec.hostNetwork.
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// RunAsUser and RunAsGroup are those of spec.securityContext; nil when not set. They hold for containers that set none.
	RunAsUser  *int64 `json:"runAsUser,omitempty"`
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`
	// Containers are the init containers in their order, then the regular ones in theirs; ephemeral ones are left out.
	Containers []Container `json:"containers,omitempty"`
}

// Container is the part of a container that decides about its pod's traffic.
type Container struct {
	// Name is the container's name.
	Name string `json:"name"`
	// Init is true for an init container (spec.initContainers), and RestartPolicy its restartPolicy: with "Always" it is a native sidecar.
	// Without them nothing is said about what runs ahead of the proxy.
	Init          bool   `json:"init,omitempty"`
	RestartPolicy string `json:"restartPolicy,omitempty"`
	// Args are its arguments.
	Args []string `json:"args,omitempty"`
	// Env are its variables by name; a value taken from elsewhere (valueFrom) is "".
	Env map[string]string `json:"env,omitempty"`
	// RunAsUser and RunAsGroup are those of the container's securityContext; nil when not set.
	RunAsUser  *int64 `json:"runAsUser,omitempty"`
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`
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

// restartAlways makes an init container a native sidecar.
const restartAlways = "Always"

// IsSidecar says whether it is a native sidecar: an init container that goes on beside those that are started behind it
// (https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/).
func (c Container) IsSidecar() bool { return c.Init && c.RestartPolicy == restartAlways }

// Facts are what a planner must know about the network namespace and cannot learn from the pod. The caller finds them out and
// passes them in, so that the same input always gives the same plan: package netfacts reads them of a namespace. The zero value is for tests:
// it is a namespace without IPv6, and where there is IPv6 all the same, the plan lets it pass uncaptured.
type Facts struct {
	// IPv6 says that the namespace's kernel has IPv6 enabled on at least one interface, or would have it on a new one
	// (net.ipv6.conf.*.disable_ipv6): then the plan captures IPv6 too, whatever addresses the pod has at this moment.
	IPv6 bool
}
