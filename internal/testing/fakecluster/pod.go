// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Pod is a pod of a cluster.
type Pod struct {
	Namespace, Name, UID, Node string
	// Labels and Annotations are added to those that every pod here has.
	Labels, Annotations map[string]string
	// Owner is the kind and name of its controller, such as "Job/report"; empty without a
	// controller.
	Owner string
	// RestartPolicy defaults to "Always".
	RestartPolicy string
	// ServiceAccount may be empty, and HostNetwork false.
	ServiceAccount string
	HostNetwork    bool
	// NoSidecar leaves out the injected sidecar and its annotation.
	NoSidecar bool
	// Phase defaults to "Running".
	Phase string
	// Addresses default to 10.244.0.7; a single empty one stands for none.
	Addresses []string
	// Validator is the exit code of its init container istio-validation, which has ended and waits
	// for its restart; 0 if it has passed. Nil for a pod without the container.
	Validator *int32
	// Object is the pod as JSON, exactly as it was created; the cluster only adds the version. If
	// it is empty, the cluster builds an object from the other fields. Namespace, Name, UID and
	// Node must be the object's in any case.
	Object string
}

// padding is about the size of managed fields and the rest of a status in a real pod.
const padding = 6 << 10

// json returns the pod as the API server writes it, about 8 KiB large.
func (p Pod) json(number int) string {
	if p.Object != "" {
		return withVersion(p.Object, number)
	}
	labels := map[string]string{"app": p.Name, "security.istio.io/tlsMode": "istio"}
	maps.Copy(labels, p.Labels)
	annotations := map[string]string{}
	if !p.NoSidecar {
		annotations["sidecar.istio.io/status"] = `{"initContainers":null,"containers":["istio-proxy"]}`
	}
	maps.Copy(annotations, p.Annotations)
	metadata := m{
		"name": p.Name, "namespace": p.Namespace, "uid": p.UID, "resourceVersion": version(number), "labels": labels, "annotations": annotations,
		"managedFields": []m{{"manager": "kubelet", "fieldsV1": m{"f:padding": strings.Repeat("x", padding)}}},
	}
	if kind, name, owned := strings.Cut(p.Owner, "/"); owned {
		metadata["ownerReferences"] = []m{{"apiVersion": "v1", "kind": kind, "name": name, "uid": "uid-" + name, "controller": true}}
	}
	spec := m{"nodeName": p.Node, "restartPolicy": p.RestartPolicy, "securityContext": m{"fsGroup": 1337}, "containers": p.containers()}
	if p.ServiceAccount != "" {
		spec["serviceAccountName"] = p.ServiceAccount
	}
	if p.HostNetwork {
		spec["hostNetwork"] = true
	}
	status := m{"phase": cmp.Or(p.Phase, "Running"), "podIPs": p.podIPs()}
	if p.Validator != nil {
		p.validate(spec, status)
	}
	return m{"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}.json()
}

func (p Pod) containers() []m {
	app := m{
		"name": "app", "image": "example.com/app:1", "args": []string{"serve"}, "env": []m{{"name": "PORT", "value": "8080"}},
	}
	if p.NoSidecar {
		return []m{app}
	}
	return []m{app, {
		"name": "istio-proxy", "image": "example.com/proxy:1", "args": []string{"proxy", "sidecar", "--domain", "svc.cluster.local"},
		"env": []m{
			{"name": "ISTIO_META_DNS_CAPTURE", "value": "true"},
			{"name": "POD_IP", "valueFrom": m{"fieldRef": m{"fieldPath": "status.podIP"}}},
		},
		"securityContext": m{"runAsUser": 1337, "runAsGroup": 1337},
	}}
}

func (p Pod) podIPs() []m {
	if p.Addresses == nil {
		return []m{{"ip": "10.244.0.7"}}
	}
	ips := []m{}
	for _, address := range p.Addresses {
		if address != "" {
			ips = append(ips, m{"ip": address})
		}
	}
	return ips
}

// withVersion sets the version of a pod that is given as JSON.
func withVersion(object string, number int) string {
	var pod m
	err := json.Unmarshal([]byte(object), &pod)
	metadata, found := pod["metadata"].(map[string]any)
	if err != nil || !found {
		panic(fmt.Sprintf("fakecluster: Pod.Object is no pod: %v: %s", err, object))
	}
	metadata["resourceVersion"] = version(number)
	return pod.json()
}

// validate adds the validator.
func (p Pod) validate(spec, status m) {
	spec["initContainers"] = []m{{"name": "istio-validation", "image": "example.com/proxy:1"}}
	end := m{"exitCode": *p.Validator, "reason": "Completed", "finishedAt": "2026-03-04T05:06:07Z"}
	if *p.Validator != 0 {
		end["reason"], status["phase"] = "Error", "Pending"
	}
	status["initContainerStatuses"] = []m{{"name": "istio-validation", "state": m{"terminated": end}, "lastState": m{}}}
}
