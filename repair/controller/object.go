// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/repair"
)

// MaxPod is the maximum number of bytes of text that are kept of a pod.
const MaxPod = 64 << 10

// lastApplied is the largest annotation of many pods, and only kubectl uses it.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Object is a Pod object, version v1, decoded only as far as it decides about traffic and repair.
// The informer of [Client] keeps Objects; callers must not change them.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              podSpec   `json:"spec"`
	Status            podStatus `json:"status"`
	// TooLarge reports that the pod has more than [MaxPod] bytes, and that only its names are kept.
	TooLarge bool `json:"-"`
}

type podSpec struct {
	podsource.PodSpec
	NodeName      string `json:"nodeName"`
	RestartPolicy string `json:"restartPolicy"`
}

type podStatus struct {
	Phase                 string            `json:"phase"`
	PodIPs                []podIP           `json:"podIPs"`
	Conditions            []condition       `json:"conditions"`
	InitContainerStatuses []containerStatus `json:"initContainerStatuses"`
	ContainerStatuses     []containerStatus `json:"containerStatuses"`
}

type podIP struct {
	IP string `json:"ip"`
}

type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Reason string `json:"reason"`
}

type containerStatus struct {
	Name         string         `json:"name"`
	ContainerID  string         `json:"containerID"`
	Started      bool           `json:"started"`
	RestartCount int32          `json:"restartCount"`
	State        containerState `json:"state"`
	LastState    containerState `json:"lastState"`
}

type containerState struct {
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

// DeepCopyObject returns a shallow copy, which suffices: objects are replaced, not edited.
func (o *Object) DeepCopyObject() runtime.Object {
	same := *o
	return &same
}

// DeepCopyObject returns a shallow copy, which suffices: objects are replaced, not edited.
func (l *objectList) DeepCopyObject() runtime.Object {
	same := *l
	return &same
}

// codecs decode only pods and the API server's errors.
func codecs() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(groupVersion().WithKind("Pod"), &Object{})
	scheme.AddKnownTypeWithName(groupVersion().WithKind("PodList"), &objectList{})
	metav1.AddToGroupVersion(scheme, groupVersion())
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

func groupVersion() schema.GroupVersion { return schema.GroupVersion{Version: "v1"} }

// strip drops the fields that are not used, and most of a pod that is too large.
func strip(object any) (any, error) {
	o, isPod := object.(*Object)
	if !isPod || o.TooLarge {
		// Either a pod whose deletion was missed, or one that comes twice and is stripped already.
		return object, nil
	}
	kept := metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
	delete(o.Annotations, lastApplied)
	if o.size() > MaxPod {
		return &Object{ObjectMeta: kept, TooLarge: true}, nil
	}
	kept.Labels, kept.Annotations = o.Labels, o.Annotations
	kept.OwnerReferences, kept.DeletionTimestamp = o.OwnerReferences, o.DeletionTimestamp
	return &Object{ObjectMeta: kept, Spec: o.Spec, Status: o.Status}, nil
}

// size returns about how many bytes the texts have.
func (o *Object) size() int {
	size := o.Spec.Size()
	for _, texts := range []map[string]string{o.Labels, o.Annotations} {
		for key, value := range texts {
			size += len(key) + len(value)
		}
	}
	for _, statuses := range [][]containerStatus{o.Status.InitContainerStatuses, o.Status.ContainerStatuses} {
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

// Pod returns the pod in the form that package repair uses.
func (o *Object) Pod() repair.Pod {
	pod := repair.Pod{
		Pod:             o.Spec.Pod(o.Namespace, o.Name, string(o.UID), o.Labels, o.Annotations),
		ResourceVersion: o.ResourceVersion, NodeName: o.Spec.NodeName,
		RestartPolicy: repair.RestartPolicy(o.Spec.RestartPolicy), Phase: repair.Phase(o.Status.Phase),
	}
	if o.DeletionTimestamp != nil {
		pod.DeletionTimestamp = o.DeletionTimestamp.Time
	}
	for _, owner := range o.OwnerReferences {
		pod.Owners = append(pod.Owners, repair.OwnerReference{
			Kind: owner.Kind, Name: owner.Name, UID: string(owner.UID), Controller: owner.Controller != nil && *owner.Controller,
		})
	}
	for _, ip := range o.Status.PodIPs {
		// The API server accepts only valid addresses.
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			pod.IPs = append(pod.IPs, address)
		}
	}
	for _, c := range o.Status.Conditions {
		pod.Conditions = append(pod.Conditions, repair.Condition(c))
	}
	for _, s := range o.Status.InitContainerStatuses {
		pod.Statuses = append(pod.Statuses, s.status(true))
	}
	for _, s := range o.Status.ContainerStatuses {
		pod.Statuses = append(pod.Statuses, s.status(false))
	}
	return pod
}

func (s containerStatus) status(initial bool) repair.ContainerStatus {
	_, id, _ := strings.Cut(s.ContainerID, "://")
	return repair.ContainerStatus{
		Name: s.Name, ContainerID: id, Init: initial, Started: s.Started, RestartCount: s.RestartCount,
		State: s.State.state(), Last: s.LastState.state(),
	}
}

func (s containerState) state() repair.ContainerState {
	state := repair.ContainerState{Running: s.Running != nil}
	if s.Waiting != nil {
		state.Waiting = s.Waiting.Reason
	}
	if end := s.Terminated; end != nil {
		state.Terminated = &repair.Termination{
			ExitCode: end.ExitCode, Reason: end.Reason, Message: end.Message, FinishedAt: end.FinishedAt.Time,
		}
	}
	return state
}
