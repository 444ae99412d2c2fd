// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// object are the fields of any Kubernetes object that tell whether there is a pod in it.
type object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metadata          `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
	// Template is that of a PodTemplate.
	Template *template `json:"template"`
	Spec     struct {
		// Template is that of Deployments, Jobs and all others that make pods, also of workloads
		// that Kubernetes itself doesn't know.
		Template *template `json:"template"`
		// JobTemplate is that of a CronJob.
		JobTemplate struct {
			Spec struct {
				Template *template `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
	Status struct {
		PodIP  string `json:"podIP"`
		PodIPs []struct {
			IP string `json:"ip"`
		} `json:"podIPs"`
	} `json:"status"`
}

type metadata struct {
	Namespace    string `json:"namespace"`
	Name         string `json:"name"`
	GenerateName string `json:"generateName"`
}

// template is a PodTemplateSpec, as far as it is looked into here.
type template struct {
	Metadata map[string]json.RawMessage `json:"metadata"`
	Spec     json.RawMessage            `json:"spec"`
}

// template is the pod template of the object; nil where it has none. A template has containers:
// other kinds of objects have templates of other things.
func (o object) template() *template {
	for _, t := range []*template{o.Template, o.Spec.Template, o.Spec.JobTemplate.Spec.Template} {
		var spec struct {
			Containers []json.RawMessage `json:"containers"`
		}
		if t != nil && json.Unmarshal(t.Spec, &spec) == nil && len(spec.Containers) > 0 {
			return t
		}
	}
	return nil
}

func (o object) namespace() string {
	if o.Metadata.Namespace == "" {
		return "default"
	}
	return o.Metadata.Namespace
}

// name is the object's kind, namespace and name.
func (o object) name() string {
	name := o.Metadata.Name
	if name == "" {
		name = o.Metadata.GenerateName
	}
	return o.Kind + " " + o.namespace() + "/" + name
}

// pod is an object that is a Pod.
func (o object) pod(text []byte) (Pod, error) {
	pod := Pod{Name: o.name(), Object: text}
	ips := o.Status.PodIPs
	if len(ips) == 0 && o.Status.PodIP != "" {
		ips = append(ips, struct {
			IP string `json:"ip"`
		}{o.Status.PodIP})
	}
	for _, ip := range ips {
		address, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return Pod{}, fmt.Errorf("%s: status.podIPs has %q, which is no address: %w", pod.Name, ip.IP, err)
		}
		pod.Addresses = append(pod.Addresses, address)
	}
	typed, err := withType(text)
	pod.Object = typed
	return pod, err
}

// withType adds the kind and the version that the items of a PodList go without.
func withType(text []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	if fields["kind"] != nil && fields["apiVersion"] != nil {
		return text, nil
	}
	fields["kind"], fields["apiVersion"] = json.RawMessage(`"Pod"`), json.RawMessage(`"v1"`)
	return json.Marshal(fields)
}

// fromTemplate is a pod that the object makes.
func (o object) fromTemplate(t template) (Pod, error) {
	fields := map[string]json.RawMessage{}
	for key, value := range t.Metadata {
		fields[key] = value
	}
	for key, value := range map[string]string{"namespace": o.namespace(), "name": o.Metadata.Name} {
		text, err := json.Marshal(value)
		if err != nil {
			return Pod{}, err
		}
		fields[key] = text
	}
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": fields, "spec": t.Spec}
	text, err := json.Marshal(pod)
	return Pod{Name: o.name(), Template: true, Object: text}, err
}
