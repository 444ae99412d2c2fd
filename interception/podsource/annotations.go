// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"errors"

	"github.com/meshcni/meshcni/interception"
)

// CapabilityPodAnnotations is the capability by which a plugin's entry asks the container runtime
// for the annotations of pods. containerd and CRI-O know it; others, and older ones, pass it over.
const CapabilityPodAnnotations = "io.kubernetes.cri.pod-annotations"

// RuntimeConfig is what a container runtime passes to a plugin in its configuration, under
// "runtimeConfig", for the capabilities that the plugin declares
// (https://www.cni.dev/docs/conventions/).
type RuntimeConfig struct {
	// PodAnnotations are all annotations of the pod, for [CapabilityPodAnnotations]. They are nil when
	// the runtime passes none, even if the pod has some.
	PodAnnotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
}

// Annotations is a source that asks no other program: it knows only the annotations that the
// container runtime passed to the plugin. They are enough for a mesh that reads nothing else of a
// pod (package sidecar's Dialect.AnnotationsSuffice). For any other mesh the error is
// [ErrIncomplete]; the annotations may still say that the pod is not in the mesh
// (Mesh.ByAnnotations).
type Annotations struct {
	// Values are the pod's annotations, as in [RuntimeConfig]; nil when the runtime passed none.
	Values map[string]string
	// Suffice says that the mesh reads nothing of a pod but its annotations.
	Suffice bool
	// Dialect names, in errors, the vocabulary that the mesh reads pods by, such as "istio".
	Dialect string
}

// Pod returns a pod with the names in ref and the annotations, and nothing else.
func (a Annotations) Pod(_ context.Context, ref Ref) (interception.Pod, error) {
	refuse := func(reason string) (interception.Pod, error) {
		return interception.Pod{}, &Error{Kind: ErrIncomplete, Source: sourceAnnotations, Pod: ref, Cause: errors.New(reason)}
	}
	switch {
	case a.Values == nil:
		return refuse("it passed none")
	case !a.Suffice:
		return refuse("the dialect " + a.Dialect + " reads other things of a pod, too")
	}
	return interception.Pod{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, Annotations: a.Values}, nil
}
