// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// resource names what a list or a watch is about.
type resource string

const (
	pods       resource = "pods"
	configMaps resource = "configmaps"
	namespaces resource = "namespaces"
)

// kind returns the kind of the objects in the answers.
func (r resource) kind() string {
	if r == pods {
		return "Pod"
	}
	return "PartialObjectMetadata"
}

func (r resource) apiVersion() string {
	if r == pods {
		return "v1"
	}
	return "meta.k8s.io/v1"
}

// endsWith reports whether watches end when all requests are answered with a status. Like in the
// API server, watches of ConfigMaps do not check the client again.
func (r resource) endsWith(status int) bool {
	return status == http.StatusServiceUnavailable || status != 0 && r != configMaps
}

// key identifies an object.
type key struct {
	resource        resource
	namespace, name string
}

// object is a pod, or a ConfigMap or a namespace with only its metadata.
type object struct {
	key
	version int               // of its last change
	pod     Pod               // of a pod
	uid     string            // of another object
	labels  map[string]string // of a namespace
}

// event is a change.
type event struct {
	kind string // ADDED, MODIFIED or DELETED
	object
}

// isWanted reports whether a list or a watch of a resource selects the object.
func (o object) isWanted(what resource, by *http.Request) bool {
	namespace, selector := by.PathValue("namespace"), by.URL.Query().Get("fieldSelector")
	return o.resource == what && (namespace == "" || namespace == o.namespace) &&
		(selector == "" || selector == "spec.nodeName="+o.pod.Node || selector == "metadata.name="+o.name)
}

// json returns the object as the API server writes it.
func (o object) json() string {
	if o.resource == pods {
		return o.pod.json(o.version)
	}
	metadata := m{
		"name": o.name, "uid": o.uid, "resourceVersion": version(o.version), "labels": o.labels,
		"managedFields": []m{{"manager": "kubectl", "fieldsV1": m{"f:metadata": m{}}}},
	}
	if o.namespace != "" {
		metadata["namespace"] = o.namespace
	}
	return m{"kind": o.resource.kind(), "apiVersion": o.resource.apiVersion(), "metadata": metadata}.json()
}

// m is a JSON object.
type m map[string]any

func (o m) json() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // impossible: it consists of strings and numbers, or was JSON before
	}
	return string(text)
}

func version(n int) string { return strconv.Itoa(n) }
