// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/meshcni/meshcni/repair"
)

// Selection narrows the pods of a node. The zero value selects all. Create it with
// [ParseSelection].
type Selection struct {
	labels labels.Selector
	fields fields.Selector
}

// ParseSelection parses selectors as kubectl's --selector and --field-selector take them
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors).
// Fields are limited to those that this package reads: metadata.name, metadata.namespace,
// spec.nodeName, spec.restartPolicy and status.phase. The error reports what is wrong.
func ParseSelection(labelSelector, fieldSelector string) (Selection, error) {
	byLabel, err := labels.Parse(labelSelector)
	if err != nil {
		return Selection{}, fmt.Errorf("label selector %q: %w", labelSelector, err)
	}
	byField, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return Selection{}, fmt.Errorf("field selector %q: %w", fieldSelector, err)
	}
	known := fieldsOf(repair.Pod{})
	for _, term := range byField.Requirements() {
		if !known.Has(term.Field) {
			return Selection{}, fmt.Errorf("field selector %q: field %q isn't read here: name %s",
				fieldSelector, term.Field, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return Selection{byLabel, byField}, nil
}

// Has reports whether the selection includes the pod.
func (s Selection) Has(pod repair.Pod) bool {
	return (s.labels == nil || s.labels.Matches(labels.Set(pod.Labels))) && (s.fields == nil || s.fields.Matches(fieldsOf(pod)))
}

func fieldsOf(pod repair.Pod) fields.Set {
	return fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.NodeName,
		"spec.restartPolicy": string(pod.RestartPolicy), "status.phase": string(pod.Phase),
	}
}
