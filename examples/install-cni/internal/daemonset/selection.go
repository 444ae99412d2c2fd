// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"slices"
	"strconv"
)

// selection is the part of a DaemonSet's template that selects nodes by labels, as the DaemonSet
// controller applies it: nodeSelector and the required part of the node affinity. Taints are
// passing states of a node, and do not show where a mesh belongs.
// https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
type selection struct {
	NodeSelector map[string]string `json:"nodeSelector"`
	Affinity     struct {
		NodeAffinity struct {
			Required *struct {
				Terms []term `json:"nodeSelectorTerms"`
			} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
		} `json:"nodeAffinity"`
	} `json:"affinity"`
}

// term is one alternative of a node selector: all of its requirements must hold.
type term struct {
	Expressions []requirement `json:"matchExpressions"`
	Fields      []requirement `json:"matchFields"`
}

// requirement is about one label, or the node's name.
type requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// everywhere reports whether all nodes are selected.
func (s selection) everywhere() bool {
	return len(s.NodeSelector) == 0 && s.Affinity.NodeAffinity.Required == nil
}

// selects reports whether a node of this name, with these labels, is selected. The error is about
// what is not understood.
func (s selection) selects(name string, labels map[string]string) (bool, error) {
	for key, value := range s.NodeSelector {
		if got, ok := labels[key]; !ok || got != value {
			return false, nil
		}
	}
	required := s.Affinity.NodeAffinity.Required
	if required == nil {
		return true, nil
	}
	for _, t := range required.Terms {
		if matches, err := t.matches(name, labels); matches || err != nil {
			return matches, err
		}
	}
	return false, nil
}

// matches returns false for an empty term.
func (t term) matches(name string, labels map[string]string) (bool, error) {
	for _, r := range t.Expressions {
		if ok, err := r.holds(labels); !ok || err != nil {
			return false, err
		}
	}
	for _, r := range t.Fields {
		if ok, err := r.holds(map[string]string{"metadata.name": name}); !ok || err != nil {
			return false, err
		}
	}
	return len(t.Expressions)+len(t.Fields) > 0, nil
}

func (r requirement) holds(labels map[string]string) (bool, error) {
	value, there := labels[r.Key]
	switch r.Operator {
	case "In":
		return there && slices.Contains(r.Values, value), nil
	case "NotIn":
		return !there || !slices.Contains(r.Values, value), nil
	case "Exists":
		return there, nil
	case "DoesNotExist":
		return !there, nil
	case "Gt", "Lt":
		return r.compares(value, there)
	}
	return false, fmt.Errorf("the node affinity has the unknown operator %q", r.Operator)
}

// compares applies Gt and Lt to integers; a label that is not an integer does not match.
func (r requirement) compares(value string, there bool) (bool, error) {
	if len(r.Values) != 1 {
		return false, fmt.Errorf("the node affinity compares %s with %d values", r.Key, len(r.Values))
	}
	than, err := strconv.ParseInt(r.Values[0], 10, 64)
	if err != nil {
		return false, fmt.Errorf("the node affinity compares %s with what is not a number: %w", r.Key, err)
	}
	number, err := strconv.ParseInt(value, 10, 64)
	if !there || err != nil {
		return false, nil //nolint:nilerr // text is neither greater nor less than a number
	}
	return (r.Operator == "Gt" && number > than) || (r.Operator == "Lt" && number < than), nil
}
