// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"context"
	"errors"

	"github.com/meshcni/meshcni/interception"
)

// RuntimeConfig is what a container runtime passes to a plugin in its configuration, under "runtimeConfig", for the capabilities that
// the plugin declares (https://www.cni.dev/docs/conventions/).
type RuntimeConfig struct {
	// PodAnnotations are all annotations of the pod. containerd from 1.6 on and CRI-O from 1.28 on pass them to a plugin with
	// "capabilities": {"io.kubernetes.cri.pod-annotations": true}. They are nil when the runtime passes none: the pod may have some then.
	PodAnnotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
}

// Annotations is a source that asks nobody: what it knows of the pod is what the container runtime passed along. With a dialect that
// reads nothing else ([interception.Dialect.AnnotationsSuffice]) that is an answer. With any other it is an [ErrIncomplete], and
// [interception.DecideByAnnotations] still tells whether the pod is outside of the mesh.
type Annotations struct {
	// Values are the pod's annotations, as in [RuntimeConfig]; nil when the runtime passed none.
	Values map[string]string
	// Dialect says what is read of a pod.
	Dialect interception.Dialect
}

// Pod returns a pod of the names in ref and the annotations.
func (a Annotations) Pod(_ context.Context, ref Ref) (interception.Pod, error) {
	refuse := func(reason string) (interception.Pod, error) {
		return interception.Pod{}, &Error{Kind: ErrIncomplete, Source: sourceAnnotations, Pod: ref, Cause: errors.New(reason)}
	}
	switch {
	case a.Values == nil:
		return refuse("it passed none")
	case !a.Dialect.AnnotationsSuffice():
		return refuse("the dialect " + a.Dialect.Name + " reads other things of a pod, too")
	}
	return interception.Pod{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID, Annotations: a.Values}, nil
}
