// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"fmt"
	"net/http"
	"strings"
)

// configMap is a ConfigMap with only its metadata, and the version of its last change.
type configMap struct {
	namespace, name string
	version         int
}

// PutConfigMap creates a ConfigMap, or recreates it.
func (c *Cluster) PutConfigMap(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	made := configMap{namespace, name, c.version}
	c.maps[namespace+"/"+name] = made
	c.events = append(c.events, event{"ADDED", made})
	c.notify()
}

// DeleteConfigMap deletes a ConfigMap.
func (c *Cluster) DeleteConfigMap(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	delete(c.maps, namespace+"/"+name)
	c.events = append(c.events, event{"DELETED", configMap{namespace, name, c.version}})
	c.notify()
}

// serveConfigMaps answers a list or a watch of one ConfigMap, in the metadata-only form.
func (c *Cluster) serveConfigMaps(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=") {
		fail(w, http.StatusNotAcceptable)
		return
	}
	c.serveMetadata(w, r, configMaps)
}

// serveMetadata answers a list or a watch only in the metadata-only form.
func (c *Cluster) serveMetadata(w http.ResponseWriter, r *http.Request, what resource) {
	form := what.kind()
	if r.URL.Query().Get("watch") != "true" {
		form += "List"
	}
	if !strings.Contains(r.Header.Get("Accept"), "as="+form+";g=meta.k8s.io;v=v1") {
		fail(w, http.StatusNotAcceptable)
		return
	}
	c.serve(w, r, what)
}

func (m configMap) at() int { return m.version }

func (m configMap) isWanted(by *http.Request) bool {
	return by.PathValue("namespace") == m.namespace && by.URL.Query().Get("fieldSelector") == "metadata.name="+m.name
}

func (m configMap) json() string {
	return fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"namespace":%q,"name":%q,"uid":"uid-%d","resourceVersion":"%d"}}`,
		configMaps.kind(), configMaps.apiVersion(), m.namespace, m.name, m.version, m.version)
}
