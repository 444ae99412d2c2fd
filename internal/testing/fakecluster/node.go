// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
)

// Taint replaces the taints of a node, each given as JSON. It creates an unknown node.
func (c *Cluster) Taint(node string, taints ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[node] = slices.Clone(taints)
}

// Taints returns those of a node, each as JSON.
func (c *Cluster) Taints(node string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.nodes[node])
}

func (c *Cluster) getNode(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeNode(w, r.PathValue("name"))
}

func (c *Cluster) writeNode(w http.ResponseWriter, name string) {
	taints, found := c.nodes[name]
	if !found {
		fail(w, http.StatusNotFound)
		return
	}
	raw := make([]json.RawMessage, len(taints))
	for i, taint := range taints {
		raw[i] = json.RawMessage(taint)
	}
	send(w, http.StatusOK, m{"kind": "Node", "apiVersion": "v1", "metadata": m{"name": name}, "spec": m{"taints": raw}}.json())
}

// patchNode takes JSON patches (RFC 6902) that test all taints and then replace them.
func (c *Cluster) patchNode(w http.ResponseWriter, r *http.Request) {
	const path = "/spec/taints"
	var patch []struct {
		Op, Path string
		Value    []json.RawMessage
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(data, &patch)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := r.PathValue("name")
	switch {
	case r.Header.Get("Content-Type") != "application/json-patch+json":
		fail(w, http.StatusUnsupportedMediaType)
	case err != nil || len(patch) != 2 || patch[0].Op != "test" || patch[1].Op != "replace" || patch[0].Path != path || patch[1].Path != path:
		fail(w, http.StatusBadRequest)
	case !slices.EqualFunc(patch[0].Value, c.nodes[name], sameJSON):
		fail(w, http.StatusUnprocessableEntity)
	default:
		c.nodes[name] = nil
		for _, taint := range patch[1].Value {
			c.nodes[name] = append(c.nodes[name], string(taint))
		}
		c.writeNode(w, name)
	}
}

// sameJSON compares values, not their texts.
func sameJSON(a json.RawMessage, b string) bool {
	var left, right any
	return errors.Join(json.Unmarshal(a, &left), json.Unmarshal([]byte(b), &right)) == nil && reflect.DeepEqual(left, right)
}
