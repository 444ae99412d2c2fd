// SPDX-License-Identifier: Apache-2.0

package interception

import "slices"

// Pod is the part of a Kubernetes Pod that decides how its traffic is captured. It has no
// Kubernetes types: a caller with a Pod object copies these fields. Its JSON form is a flat object
// with the names of Kubernetes and without empty fields.
type Pod struct {
	// Namespace and Name identify the pod in its cluster at one time, UID for all time.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	// Labels and Annotations come from the pod's metadata.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// ServiceAccount is the name of the account that the pod runs as (spec.serviceAccountName), which
	// is its identity in a mesh; "" from sources that do not know it.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// HostNetwork is spec.hostNetwork.
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// RunAsUser and RunAsGroup come from spec.securityContext; nil when not set. They apply to
	// containers that set neither.
	RunAsUser  *int64 `json:"runAsUser,omitempty"`
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`
	// Containers are the init containers and then the regular ones, without ephemeral ones.
	Containers []Container `json:"containers,omitempty"`
}

// Container is the part of a container that decides how its pod's traffic is captured.
type Container struct {
	// Name is the container's name.
	Name string `json:"name"`
	// Init is true for an init container (spec.initContainers). RestartPolicy is its restartPolicy;
	// "Always" makes it a native sidecar. Without these fields the planner cannot know what runs
	// before the proxy.
	Init          bool   `json:"init,omitempty"`
	RestartPolicy string `json:"restartPolicy,omitempty"`
	// Args are the container's arguments.
	Args []string `json:"args,omitempty"`
	// Env are its environment variables by name. A value from another source (valueFrom) is "".
	Env map[string]string `json:"env,omitempty"`
	// RunAsUser and RunAsGroup come from the container's securityContext; nil when not set.
	RunAsUser  *int64 `json:"runAsUser,omitempty"`
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`
}

// Container returns the container of that name; a regular one if an init container has it, too.
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

// IsSidecar reports whether the container is a native sidecar: an init container that keeps running
// beside the containers that start after it
// (https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/).
func (c Container) IsSidecar() bool { return c.Init && c.RestartPolicy == restartAlways }

// Facts are what a planner must know about the network namespace and cannot learn from the pod. The
// caller passes them in, so that the same input always gives the same plan; package netfacts reads
// them from a namespace. The zero value is a namespace without IPv6 and meant for tests: where IPv6
// is in use after all, the plan lets it pass uncaptured.
type Facts struct {
	// IPv6 reports whether the namespace has IPv6 enabled on at least one interface, or would
	// enable it on a new one (net.ipv6.conf.*.disable_ipv6). The plan then captures IPv6 too,
	// whatever addresses the pod has at this moment.
	IPv6 bool
	// LoopbackIPv6 reports whether lo has IPv6 (net.ipv6.conf.lo.disable_ipv6). Without it the kernel
	// refuses IPv6 routes through lo.
	LoopbackIPv6 bool
}

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
