// SPDX-License-Identifier: Apache-2.0

package nodepods

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/meshcni/meshcni/interception/podsource"
)

// maxPod is how many bytes are kept of a pod at most.
const maxPod = 64 << 10

// lastApplied is the largest annotation of many pods, and means nothing but to kubectl.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// pod is a Pod object of which only what matters is decoded.
type pod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              podsource.PodSpec `json:"spec"`
	// TooLarge says that the rest is left out.
	TooLarge bool `json:"-"`
}

// podList is what a list answers.
type podList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []pod `json:"items"`
}

// DeepCopyObject copies as much as anybody changes here: pods are replaced, not edited.
func (p *pod) DeepCopyObject() runtime.Object {
	same := *p
	return &same
}

// DeepCopyObject copies as much as anybody changes here.
func (l *podList) DeepCopyObject() runtime.Object {
	same := *l
	return &same
}

// codecs decode pods alone.
func codecs() runtime.NegotiatedSerializer {
	version := schema.GroupVersion{Version: "v1"}
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(version.WithKind("Pod"), &pod{})
	scheme.AddKnownTypeWithName(version.WithKind("PodList"), &podList{})
	metav1.AddToGroupVersion(scheme, version)
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

// slim drops what nobody asks for, and most of a pod that is too large.
func slim(object any) (any, error) {
	p, isPod := object.(*pod)
	if !isPod || p.TooLarge {
		return object, nil // a pod whose deletion was missed, or one that comes twice: slim already
	}
	kept := metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
	delete(p.Annotations, lastApplied)
	size := p.Spec.Size()
	for _, texts := range []map[string]string{p.Labels, p.Annotations} {
		for key, value := range texts {
			size += len(key) + len(value)
		}
	}
	if size > maxPod {
		return &pod{ObjectMeta: kept, TooLarge: true}, nil
	}
	kept.Labels, kept.Annotations = p.Labels, p.Annotations
	return &pod{ObjectMeta: kept, Spec: p.Spec}, nil
}

// errTooLarge is about a pod of which not enough is kept.
func errTooLarge() error {
	return fmt.Errorf("%w: the pod has more than %d bytes, which are not kept here", podsource.ErrNotReady, maxPod)
}
