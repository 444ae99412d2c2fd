// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"

	"github.com/meshcni/meshcni/interception"
)

// mirrorAnnotation holds the UID by which the kubelet and the runtime know a static pod. The API
// server has only its mirror, with another UID. See
// https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// RuntimeUID returns the UID by which the node knows a pod: the plugin is told of it, and cgroups
// have it.
func RuntimeUID(pod interception.Pod) string {
	return cmp.Or(pod.Annotations[mirrorAnnotation], pod.UID)
}
