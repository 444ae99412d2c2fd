// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"encoding/json"
	"maps"
	"net/http"
)

// namespace is a namespace with only its metadata, and the version of its last change.
type namespace struct {
	name    string
	labels  map[string]string
	version int
}

// PutNamespace creates a namespace, or changes its labels.
func (c *Cluster) PutNamespace(name string, labels map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := "ADDED"
	if _, found := c.spaces[name]; found {
		kind = "MODIFIED"
	}
	c.version++
	c.spaces[name] = namespace{name, maps.Clone(labels), c.version}
	c.events = append(c.events, event{kind, c.spaces[name]})
	c.notify()
}

// DeleteNamespace deletes a namespace, but not what is in it.
func (c *Cluster) DeleteNamespace(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	delete(c.spaces, name)
	c.events = append(c.events, event{"DELETED", namespace{name: name, version: c.version}})
	c.notify()
}

func (n namespace) at() int { return n.version }

func (n namespace) isWanted(by *http.Request) bool {
	selector := by.URL.Query().Get("fieldSelector")
	return by.URL.Path == namespacesPath && (selector == "" || selector == "metadata.name="+n.name)
}

func (n namespace) json() string {
	text, err := json.Marshal(m{
		"kind": namespaces.kind(), "apiVersion": namespaces.apiVersion(), "metadata": m{
			"name": n.name, "uid": "uid-" + n.name, "resourceVersion": version(n.version), "labels": n.labels,
			"managedFields": []m{{"manager": "kubectl", "fieldsV1": m{"f:metadata": m{}}}},
		},
	})
	if err != nil {
		panic(err) // impossible: it consists of strings
	}
	return string(text)
}
