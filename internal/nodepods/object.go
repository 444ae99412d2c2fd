// SPDX-License-Identifier: Apache-2.0

package nodepods

import (
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podsource"
)

// MaxPod is the maximum number of bytes of text that are kept of a pod.
const MaxPod = 64 << 10

// lastApplied is the largest annotation of many pods, and only kubectl uses it.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Object is a Pod object, version v1, decoded only as far as it decides about traffic and repair.
// The informer of [NewInformer] keeps Objects; callers must not change them.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              PodSpec   `json:"spec"`
	Status            PodStatus `json:"status"`
	// TooLarge reports that the pod has more than [MaxPod] bytes. Then only its names, account, phase
	// and addresses, and the labels and annotations that [Selection] names are kept.
	TooLarge bool `json:"-"`
}

// PodSpec is the specification.
type PodSpec struct {
	podsource.PodSpec
	NodeName      string `json:"nodeName"`
	RestartPolicy string `json:"restartPolicy"`
}

// PodStatus is the status.
type PodStatus struct {
	Phase                 string            `json:"phase"`
	PodIPs                []podIP           `json:"podIPs"`
	Conditions            []condition       `json:"conditions"`
	InitContainerStatuses []ContainerStatus `json:"initContainerStatuses"`
	ContainerStatuses     []ContainerStatus `json:"containerStatuses"`
}

type podIP struct {
	IP string `json:"ip"`
}

type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Reason string `json:"reason"`
}

// ContainerStatus is the status of one container.
type ContainerStatus struct {
	Name        string         `json:"name"`
	ContainerID string         `json:"containerID"`
	Started     bool           `json:"started"`
	State       ContainerState `json:"state"`
	LastState   ContainerState `json:"lastState"`
}

// ContainerState is waiting, running or terminated.
type ContainerState struct {
	Waiting    *waiting    `json:"waiting"`
	Running    *struct{}   `json:"running"`
	Terminated *terminated `json:"terminated"`
}

type waiting struct {
	Reason string `json:"reason"`
}

type terminated struct {
	ExitCode   int32       `json:"exitCode"`
	Reason     string      `json:"reason"`
	Message    string      `json:"message"`
	FinishedAt metav1.Time `json:"finishedAt"`
}

type objectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Object `json:"items"`
}

// Ready reports whether the condition Ready is true. That of a pod that is too large is not kept.
func (o *Object) Ready() bool {
	return slices.ContainsFunc(o.Status.Conditions, func(c condition) bool { return c.Type == "Ready" && c.Status == "True" })
}

// DeepCopyObject returns a shallow copy, which suffices: objects are replaced, not edited.
func (o *Object) DeepCopyObject() runtime.Object {
	same := *o
	return &same
}

func (l *objectList) DeepCopyObject() runtime.Object {
	same := *l
	return &same
}

// stripper keeps of pods that are too large only the labels and annotations of these names.
type stripper struct{ names []string }

// strip drops the fields that are not used, and most of a pod that is too large.
func (s stripper) strip(object any) (any, error) {
	o, isPod := object.(*Object)
	if !isPod || o.TooLarge {
		// Either a pod whose deletion was missed, or one that comes twice and is stripped already.
		return object, nil
	}
	kept := metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, CreationTimestamp: o.CreationTimestamp,
	}
	delete(o.Annotations, lastApplied)
	if o.size() > MaxPod {
		kept.Labels, kept.Annotations = s.named(o.Labels), s.named(o.Annotations)
		spec := PodSpec{NodeName: o.Spec.NodeName}
		spec.ServiceAccount, spec.HostNetwork = o.Spec.ServiceAccount, o.Spec.HostNetwork
		return &Object{
			ObjectMeta: kept, Spec: spec, Status: PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs}, TooLarge: true,
		}, nil
	}
	kept.Labels, kept.Annotations = o.Labels, o.Annotations
	kept.OwnerReferences, kept.DeletionTimestamp = o.OwnerReferences, o.DeletionTimestamp
	return &Object{ObjectMeta: kept, Spec: o.Spec, Status: o.Status}, nil
}

// maxValue is the length above which a value may be replaced.
const maxValue = 1 << 10

// named returns the texts of the names. If these are too large together, sentences replace the long
// ones: a program that parses one finds it invalid, and not absent.
func (s stripper) named(texts map[string]string) map[string]string {
	var kept map[string]string
	for key, value := range texts {
		if slices.Contains(s.names, key) {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	if sizeOf(kept) > MaxPod {
		for key, value := range kept {
			if len(value) > maxValue {
				kept[key] = fmt.Sprintf("(%d bytes, which are more than is kept of such a pod)", len(value))
			}
		}
	}
	return kept
}

// Addresses returns the pod's addresses, none that are invalid.
func (o *Object) Addresses() []netip.Addr {
	var all []netip.Addr
	for _, ip := range o.Status.PodIPs {
		// The API server accepts only valid addresses.
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			all = append(all, address)
		}
	}
	return all
}

// size returns about how many bytes the texts have.
func (o *Object) size() int {
	size := o.Spec.Size() + sizeOf(o.Labels) + sizeOf(o.Annotations)
	for _, statuses := range [][]ContainerStatus{o.Status.InitContainerStatuses, o.Status.ContainerStatuses} {
		for _, s := range statuses {
			for _, end := range []*terminated{s.State.Terminated, s.LastState.Terminated} {
				if end != nil {
					size += len(end.Message)
				}
			}
		}
	}
	return size
}

func sizeOf(texts map[string]string) int {
	size := 0
	for key, value := range texts {
		size += len(key) + len(value)
	}
	return size
}

// Pod returns the pod as everything that decides about its traffic knows it.
func (o *Object) Pod() interception.Pod {
	return o.Spec.Pod(o.Namespace, o.Name, string(o.UID), o.Labels, o.Annotations)
}
