// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Permission is one thing that an object of a rendering allows: a verb on a resource, or a
// capability.
type Permission struct {
	// Object is the kind and name of the object that allows it, such as "Role istio-cni".
	Object string
	// What is the permission: "get apps/daemonsets istio-cni-node", "capability SYS_ADMIN".
	What string
}

func (p Permission) String() string { return p.Object + ": " + p.What }

// Permissions returns all that a rendering allows, including its hooks, in the order of its
// objects.
func (r Rendering) Permissions() []Permission {
	var all []Permission
	for _, o := range slices.Concat(r.Objects, r.Hooks) {
		for _, g := range o.grants() {
			all = append(all, g.permission)
		}
	}
	return all
}

// Reduction is a rendering with one permission less.
type Reduction struct {
	Without   Permission
	Rendering Rendering
}

// Reduced returns one reduction for each permission.
func (r Rendering) Reduced() ([]Reduction, error) {
	var all []Reduction
	for _, group := range []struct {
		objects []Object
		put     func(r *Rendering, objects []Object)
	}{
		{r.Objects, func(r *Rendering, objects []Object) { r.Objects = objects }},
		{r.Hooks, func(r *Rendering, objects []Object) { r.Hooks = objects }},
	} {
		for i, o := range group.objects {
			for j, g := range o.grants() {
				reduced, err := o.without(j)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", g.permission, err)
				}
				rendering, objects := r, slices.Clone(group.objects)
				objects[i] = reduced
				group.put(&rendering, objects)
				all = append(all, Reduction{g.permission, rendering})
			}
		}
	}
	return all, nil
}

// grant is a permission, and how to remove it.
type grant struct {
	permission Permission
	revoke     func()
}

// without returns a copy of the object with one permission less.
func (o Object) without(index int) (Object, error) {
	encoded, err := json.Marshal(o.Content)
	if err != nil {
		return Object{}, err
	}
	var c Object
	if err := json.Unmarshal(encoded, &c.Content); err != nil {
		return Object{}, err
	}
	c.grants()[index].revoke()
	encoded, err = yaml.Marshal(c.Content)
	c.Text = string(encoded)
	return c, err
}

// grants returns all that the object allows.
func (o Object) grants() []grant {
	switch o.Kind() {
	case "Role", "ClusterRole":
		return o.ruleGrants()
	case "DaemonSet", "Job":
		return o.capabilityGrants()
	}
	return nil
}

func (o Object) ruleGrants() []grant {
	var all []grant
	for i, rule := range objects(o.Content["rules"]) {
		where := make([]string, 0, 1)
		for _, group := range texts(rule["apiGroups"]) {
			for _, resource := range texts(rule["resources"]) {
				where = append(where, strings.TrimPrefix(group+"/"+resource, "/"))
			}
		}
		only := strings.Join(append([]string{strings.Join(where, ", ")}, texts(rule["resourceNames"])...), " ")
		for _, verb := range texts(rule["verbs"]) {
			all = append(all, o.grant(verb+" "+only, func() {
				if remove(rule, "verbs", verb) == 0 { // the API server refuses a rule without verbs
					rules, _ := o.Content["rules"].([]any)
					o.Content["rules"] = slices.Delete(rules, i, i+1)
				}
			}))
		}
	}
	return all
}

func (o Object) capabilityGrants() []grant {
	var all []grant
	spec := object(object(object(o.Content["spec"])["template"])["spec"])
	for _, container := range objects(spec["containers"]) {
		capabilities := object(object(container["securityContext"])["capabilities"])
		for _, name := range texts(capabilities["add"]) {
			all = append(all, o.grant("capability "+name, func() { remove(capabilities, "add", name) }))
		}
	}
	return all
}

func (o Object) grant(what string, revoke func()) grant {
	return grant{Permission{o.Kind() + " " + o.Name(), what}, revoke}
}

// remove removes a word from a list, and returns how many are left.
func remove(from map[string]any, list, word string) int {
	words, _ := from[list].([]any)
	words = slices.DeleteFunc(words, func(one any) bool { return one == word })
	from[list] = words
	return len(words)
}

func object(value any) map[string]any {
	o, _ := value.(map[string]any)
	return o
}

func objects(value any) []map[string]any {
	list, _ := value.([]any)
	all := make([]map[string]any, len(list))
	for i, one := range list {
		all[i] = object(one)
	}
	return all
}

func texts(value any) []string {
	list, _ := value.([]any)
	all := make([]string, len(list))
	for i, one := range list {
		all[i], _ = one.(string)
	}
	return all
}
