// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// configMaps are those of a cluster, of which there is nothing but metadata.
type configMaps struct {
	there  map[string]int // by namespace/name: the version
	events []configMapEvent
}

type configMapEvent struct {
	kind, key string // ADDED or DELETED
	version   int
}

// PutConfigMap makes a ConfigMap, or makes it anew.
func (c *Cluster) PutConfigMap(namespace, name string) {
	c.changeConfigMap("ADDED", namespace+"/"+name)
}

// DeleteConfigMap takes a ConfigMap away.
func (c *Cluster) DeleteConfigMap(namespace, name string) {
	c.changeConfigMap("DELETED", namespace+"/"+name)
}

func (c *Cluster) changeConfigMap(kind, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	if kind == "DELETED" {
		delete(c.configMaps.there, key)
	} else {
		c.configMaps.there[key] = c.version
	}
	c.configMaps.events = append(c.configMaps.events, configMapEvent{kind, key, c.version})
	c.tell()
}

// listConfigMaps answers a list or a watch, of which the form asked for is that of metadata alone.
func (c *Cluster) listConfigMaps(w http.ResponseWriter, r *http.Request) {
	name, selected := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	form := "PartialObjectMetadataList"
	watches := r.URL.Query().Get("watch") == "true"
	if watches {
		form = "PartialObjectMetadata"
	}
	if !selected || !strings.Contains(r.Header.Get("Accept"), "as="+form+";g=meta.k8s.io;v=v1") {
		fail(w, http.StatusNotAcceptable)
		return
	}
	key := r.PathValue("namespace") + "/" + name
	w.Header().Set("Content-Type", "application/json")
	if watches {
		c.watchConfigMap(w, r, key)
		return
	}
	c.mu.Lock()
	made, found := c.configMaps.there[key]
	at := c.version
	c.mu.Unlock()
	items := []m{}
	if found {
		items = append(items, metadataOf(key, made))
	}
	writeJSON(w, m{
		"kind": form, "apiVersion": "meta.k8s.io/v1", "metadata": m{"resourceVersion": version(at)}, "items": items,
	})
}

// watchConfigMap sends what becomes of one ConfigMap, at first that it is there. Like the API server it doesn't ask again who is watching.
func (c *Cluster) watchConfigMap(w http.ResponseWriter, r *http.Request, key string) {
	c.mu.Lock()
	c.configMapWatches++
	next, at := len(c.configMaps.events), c.version
	known := maps.Clone(c.configMaps.there)
	if r.URL.Query().Get("sendInitialEvents") != "true" {
		known = nil
		since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion")) // none is 0
		for next > 0 && c.configMaps.events[next-1].version > since {
			next--
		}
	}
	c.mu.Unlock()
	if made, found := known[key]; found {
		writeJSON(w, m{"type": "ADDED", "object": metadataOf(key, made)})
	}
	if known != nil {
		end := metadataOf("", at)
		end["metadata"] = m{"resourceVersion": version(at), "annotations": m{"k8s.io/initial-events-end": "true"}}
		writeJSON(w, m{"type": "BOOKMARK", "object": end})
	}
	for http.NewResponseController(w).Flush() == nil {
		c.mu.Lock()
		news, changed, ended := c.configMaps.events[next:], c.changed, c.refuse == http.StatusServiceUnavailable
		next += len(news)
		c.mu.Unlock()
		if ended {
			return
		}
		for _, e := range news {
			if e.key == key {
				writeJSON(w, m{"type": e.kind, "object": metadataOf(key, e.version)})
			}
		}
		if len(news) == 0 && !await(r, changed) {
			return
		}
	}
}

// metadataOf is the metadata of a ConfigMap.
func metadataOf(key string, at int) m {
	namespace, name, _ := strings.Cut(key, "/")
	return m{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": m{
		"namespace": namespace, "name": name, "uid": fmt.Sprintf("uid-%d", at), "resourceVersion": version(at),
	}}
}

func writeJSON(w http.ResponseWriter, what m) {
	text, err := json.Marshal(what)
	if err != nil {
		text = []byte(err.Error())
	}
	_, _ = w.Write(append(text, '\n'))
}

// ConfigMapWatches is how many watches of ConfigMaps there have been.
func (c *Cluster) ConfigMapWatches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.configMapWatches
}
