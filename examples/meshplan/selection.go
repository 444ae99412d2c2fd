// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/examples/internal/manifest"
)

// selection says which pods of a source are meant: all, where it has no names.
type selection struct {
	names []string
	// lenient lets a source be that has one pod or none, whatever the names.
	lenient bool
}

// of are the pods that are meant, in the manifest's order.
func (s selection) of(pods []manifest.Pod) ([]manifest.Pod, error) {
	if len(s.names) == 0 || s.lenient && len(pods) == 1 {
		return pods, nil
	}
	for _, name := range s.names {
		if !slices.ContainsFunc(pods, func(p manifest.Pod) bool { return isNamed(p.Name, name) }) {
			var all []string
			for _, pod := range pods {
				all = append(all, strconv.Quote(pod.Name))
			}
			return nil, fmt.Errorf("there is no pod %q: --pod takes one of %s", name, strings.Join(all, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p manifest.Pod) bool {
		return !slices.ContainsFunc(s.names, func(name string) bool { return isNamed(p.Name, name) })
	}), nil
}

// ofNone refuses names for a source that has no pods.
func (s selection) ofNone(kind string) error {
	if len(s.names) == 0 || s.lenient {
		return nil
	}
	return fmt.Errorf("it is %s, which has no pod %q: leave --pod out", kind, s.names[0])
}

// isNamed reports whether a name on the command line means the pod whose full name is "Pod shop/cart": so does "shop/cart", and "cart".
func isNamed(full, name string) bool {
	_, inNamespace, _ := strings.Cut(full, " ")
	_, short, _ := strings.Cut(inNamespace, "/")
	return full != "" && slices.Contains([]string{full, inNamespace, short}, name)
}
