// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// object has the fields of any Kubernetes object that show whether it contains a pod.
type object struct {
	APIVersion string                     `json:"apiVersion"`
	Kind       string                     `json:"kind"`
	Metadata   lenient[metadata]          `json:"metadata"`
	Items      lenient[[]json.RawMessage] `json:"items"`
	// Template belongs to a PodTemplate.
	Template lenient[*template]  `json:"template"`
	Spec     lenient[workload]   `json:"spec"`
	Status   lenient[addressing] `json:"status"`
}

// workload is the spec of an object that creates pods.
type workload struct {
	// Template is the pod template of Deployments, Jobs and all others that create pods, including
	// workloads that Kubernetes itself does not know.
	Template lenient[*template] `json:"template"`
	// JobTemplate is the job template of a CronJob.
	JobTemplate lenient[struct {
		Spec struct {
			Template *template `json:"template"`
		} `json:"spec"`
	}] `json:"jobTemplate"`
}

// addressing is the status of a Pod.
type addressing struct {
	PodIP  string `json:"podIP"`
	PodIPs []ip   `json:"podIPs"`
}

type ip struct {
	IP string `json:"ip"`
}

type metadata struct {
	Namespace    string `json:"namespace"`
	Name         string `json:"name"`
	GenerateName string `json:"generateName"`
}

// template is a PodTemplateSpec, as far as it is read here.
type template struct {
	Metadata map[string]json.RawMessage `json:"metadata"`
	Spec     json.RawMessage            `json:"spec"`
}

// parseObject parses an object's fields. The only error is for a text that is not an object.
func parseObject(text []byte) (object, error) {
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return object{}, fmt.Errorf("it is not a Kubernetes object, as kubectl prints one: %s", misfit(err))
	}
	return o, nil
}

// template returns the pod template of the object; nil without one. A pod template has containers:
// other kinds of objects have templates of other things.
func (o object) template() (*template, error) {
	spec, job := o.Spec.value, o.Spec.value.JobTemplate
	if err := errors.Join(o.Template.err, o.Spec.err, spec.Template.err, job.err); err != nil && o.isWorkload() {
		return nil, fmt.Errorf("%s: its pod template can't be read: %s", o.name(), misfit(err))
	}
	for _, t := range []*template{o.Template.value, spec.Template.value, job.value.Spec.Template} {
		var spec struct {
			Containers []json.RawMessage `json:"containers"`
		}
		if t != nil && json.Unmarshal(t.Spec, &spec) == nil && len(spec.Containers) > 0 {
			return t, nil
		}
	}
	return nil, nil
}

// isWorkload reports whether Kubernetes itself creates pods for such objects.
func (o object) isWorkload() bool {
	return slices.Contains([]string{
		"CronJob", "DaemonSet", "Deployment", "Job", "PodTemplate", "ReplicaSet", "ReplicationController", "StatefulSet",
	}, o.Kind)
}

func (o object) isList() bool {
	return strings.HasSuffix(o.Kind, "List") && (o.Items.value != nil || o.Items.err != nil)
}

func (o object) namespace() string { return cmp.Or(o.Metadata.value.Namespace, "default") }

// ownName returns the object's name, or the prefix that the API server has still to complete.
func (o object) ownName() string {
	return cmp.Or(o.Metadata.value.Name, o.Metadata.value.GenerateName)
}

// name returns the object's kind, namespace and name.
func (o object) name() string { return o.Kind + " " + o.namespace() + "/" + o.ownName() }

// pod returns the pod of an object of kind Pod.
func (o object) pod(text []byte) (Pod, error) {
	pod := Pod{Name: o.name()}
	if err := o.Metadata.err; err != nil {
		return Pod{}, fmt.Errorf("it is not a Kubernetes object: its metadata can't be read: %s", misfit(err))
	}
	if err := o.Status.err; err != nil {
		return Pod{}, fmt.Errorf("%s: its status can't be read: %s", pod.Name, misfit(err))
	}
	ips := o.Status.value.PodIPs
	if len(ips) == 0 && o.Status.value.PodIP != "" {
		ips = []ip{{o.Status.value.PodIP}}
	}
	for _, ip := range ips {
		address, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return Pod{}, fmt.Errorf("%s: status.podIPs has %q, which is not an address: %w", pod.Name, ip.IP, err)
		}
		pod.Addresses = append(pod.Addresses, address.Unmap())
	}
	var err error
	pod.Object, err = o.identified(text)
	return pod, err
}

// identified adds the kind and the version that the items of a PodList lack, and the name if a Pod
// has none yet.
func (o object) identified(text []byte) ([]byte, error) {
	var fields, meta map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	typed, named := fields["kind"] != nil && fields["apiVersion"] != nil, o.Metadata.value.Name != "" || o.ownName() == ""
	if typed && named {
		return text, nil
	}
	if !typed {
		fields["kind"], fields["apiVersion"] = json.RawMessage(`"Pod"`), json.RawMessage(`"v1"`)
	}
	if !named {
		if err := json.Unmarshal(fields["metadata"], &meta); err != nil {
			return nil, err
		}
		meta["name"] = meta["generateName"]
		var err error
		if fields["metadata"], err = json.Marshal(meta); err != nil {
			return nil, err
		}
	}
	return json.Marshal(fields)
}

// fromTemplate returns a pod that the object creates.
func (o object) fromTemplate(t template) (Pod, error) {
	fields := map[string]any{}
	for key, value := range t.Metadata {
		fields[key] = value
	}
	fields["namespace"], fields["name"] = o.namespace(), o.ownName()
	if o.Metadata.value.Name == "" {
		fields["generateName"] = o.Metadata.value.GenerateName
	}
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": fields, "spec": t.Spec}
	text, err := json.Marshal(pod)
	return Pod{Name: o.name(), Template: true, Object: text}, err
}

// lenient is a field that unknown kinds of objects may use for something else. It keeps the error
// of reading it for callers that need the field.
type lenient[T any] struct {
	value T
	err   error
}

// UnmarshalJSON implements json.Unmarshaler. It never fails.
func (l *lenient[T]) UnmarshalJSON(text []byte) error {
	l.err = json.Unmarshal(text, &l.value)
	return nil
}

// misfit describes a value of the wrong type.
func misfit(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	value, _, _ := strings.Cut(wrong.Value, " ")
	if name, known := map[string]string{"array": "list", "object": "map", "bool": "boolean"}[value]; known {
		value = name
	}
	if wrong.Field == "" {
		return "it is a " + value
	}
	return wrong.Field + " is a " + value
}
