// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// The fields of a Pod object, version v1, that matter here; see
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/.
type object struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
}

type metadata struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type spec struct {
	ServiceAccount  string           `json:"serviceAccountName"`
	HostNetwork     bool             `json:"hostNetwork"`
	SecurityContext *securityContext `json:"securityContext"`
	InitContainers  []container      `json:"initContainers"`
	Containers      []container      `json:"containers"`
}

type container struct {
	Name            string           `json:"name"`
	Args            []string         `json:"args"`
	Env             []variable       `json:"env"`
	RestartPolicy   string           `json:"restartPolicy"`
	SecurityContext *securityContext `json:"securityContext"`
}

// variable has no value when it is taken from elsewhere (valueFrom).
type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type securityContext struct {
	RunAsUser  *int64 `json:"runAsUser"`
	RunAsGroup *int64 `json:"runAsGroup"`
}

// ParsePod reads one Pod object, version v1, in the JSON that the API server writes ("kubectl get
// pod NAME -o json"), for programs that have it from elsewhere. A Pod without a namespace is in
// "default", as for kubectl. The error says what the text is instead of a Pod.
func ParsePod(text []byte) (interception.Pod, error) {
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return interception.Pod{}, fmt.Errorf("not a Pod: %w", err)
	}
	if o.Kind != "Pod" || o.APIVersion != "v1" {
		return interception.Pod{}, fmt.Errorf("not a Pod, version v1: it is of kind %q, version %q", o.Kind, o.APIVersion)
	}
	o.Metadata.Namespace = cmp.Or(o.Metadata.Namespace, "default")
	return o.pod(), nil
}

// podFrom reads the answer to a request for the pod. What its errors repeat of the answer goes
// through quote.
func podFrom(answer []byte, ref Ref, quote func(string) string) (interception.Pod, *Error) {
	refuse := func(kind error, format string, args ...any) (interception.Pod, *Error) {
		return interception.Pod{}, &Error{Kind: kind, Cause: fmt.Errorf(format, args...)}
	}
	var o object
	err := json.Unmarshal(answer, &o)
	if _, is := errors.AsType[*json.SyntaxError](err); is {
		return refuse(ErrAnswer, "it is not JSON: %s", quote(err.Error()))
	} else if err != nil {
		return refuse(ErrNotPod, "%s", quote(err.Error()))
	}
	switch meta := o.Metadata; {
	case o.Kind != "Pod" || o.APIVersion != "v1":
		return refuse(ErrNotPod, "it is of kind %s, version %s, and not Pod, v1", quote(o.Kind), quote(o.APIVersion))
	case meta.Namespace != ref.Namespace || meta.Name != ref.Name:
		return refuse(ErrNotPod, "it is %s/%s", quote(meta.Namespace), quote(meta.Name))
	case !ref.Is(meta.UID, meta.Annotations):
		return refuse(ErrStalePod, "with UID %s, and not %s", quote(meta.UID), quote(ref.UID))
	}
	return o.pod(), nil
}

// labelsFrom reads the answer to a request for a namespace, as podFrom does.
func labelsFrom(answer []byte, name string, quote func(string) string) (map[string]string, *Error) {
	var namespace struct {
		Kind     string   `json:"kind"`
		Metadata metadata `json:"metadata"`
	}
	err := json.Unmarshal(answer, &namespace)
	switch {
	case err != nil:
		err = fmt.Errorf("it is no namespace: %s", quote(err.Error()))
	case namespace.Kind != "Namespace" || namespace.Metadata.Name != name:
		err = fmt.Errorf("it is %s %s", quote(namespace.Kind), quote(namespace.Metadata.Name))
	default:
		return namespace.Metadata.Labels, nil
	}
	return nil, &Error{Kind: ErrAnswer, Cause: err}
}

func (o object) pod() interception.Pod {
	pod := interception.Pod{
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, UID: o.Metadata.UID,
		Labels: o.Metadata.Labels, Annotations: o.Metadata.Annotations,
		ServiceAccount: o.Spec.ServiceAccount, HostNetwork: o.Spec.HostNetwork,
	}
	pod.RunAsUser, pod.RunAsGroup = o.Spec.SecurityContext.ids()
	for _, c := range o.Spec.InitContainers {
		initial := c.container()
		initial.Init, initial.RestartPolicy = true, c.RestartPolicy
		pod.Containers = append(pod.Containers, initial)
	}
	for _, c := range o.Spec.Containers {
		pod.Containers = append(pod.Containers, c.container())
	}
	return pod
}

func (c container) container() interception.Container {
	result := interception.Container{Name: c.Name, Args: c.Args, Env: make(map[string]string, len(c.Env))}
	for _, v := range c.Env {
		result.Env[v.Name] = v.Value
	}
	result.RunAsUser, result.RunAsGroup = c.SecurityContext.ids()
	return result
}

func (s *securityContext) ids() (user, group *int64) {
	if s == nil {
		return nil, nil
	}
	return s.RunAsUser, s.RunAsGroup
}

// PodSpec is what matters here of a Pod object's spec, for programs that decode the objects
// themselves, such as informers.
type PodSpec struct{ spec }

// Pod returns the pod with that spec and these metadata.
func (s PodSpec) Pod(namespace, name, uid string, labels, annotations map[string]string) interception.Pod {
	return object{
		Metadata: metadata{Namespace: namespace, Name: name, UID: uid, Labels: labels, Annotations: annotations}, Spec: s.spec,
	}.pod()
}

// Size returns the approximate number of bytes in the spec's texts.
func (s PodSpec) Size() int {
	size := 0
	for _, list := range [][]container{s.InitContainers, s.Containers} {
		for _, c := range list {
			size += len(c.Name)
			for _, arg := range c.Args {
				size += len(arg)
			}
			for _, v := range c.Env {
				size += len(v.Name) + len(v.Value)
			}
		}
	}
	return size
}
