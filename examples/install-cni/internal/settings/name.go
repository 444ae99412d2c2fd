// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"strings"
)

// label is the name of a Kubernetes object or nothing.
func label(of func(*Settings) *string) parser {
	return parser{kind: "name", shape: nameShape(true), apply: func(s *Settings, value string) error {
		if value == "" {
			return nil
		}
		if err := checkName(value); err != nil {
			return err
		}
		*of(s) = value
		return nil
	}}
}

// nameShape is that of a Kubernetes name, or of none where that may be.
func nameShape(optional bool) shape {
	const part = `[a-z0-9]([a-z0-9-]*[a-z0-9])?`
	pattern := part + `(\.` + part + `)*`
	if optional {
		pattern = "(" + pattern + ")?"
	}
	return shape{Type: "string", Pattern: "^" + pattern + "$", MaxLength: maxName}
}

// maxName is how long a name of Kubernetes is at most.
const maxName = 253

// namespaces is a list; blanks around its members and empty members don't matter.
func namespaces(of func(*Settings) *[]string) parser {
	item := nameShape(false)
	return list("list", item, of, func(name string) (string, error) { return name, checkName(name) })
}

// podName gives the DaemonSet's name, if nobody has said it: a DaemonSet's pod is called like it, a dash, and five random characters.
// Nothing is guessed from a name of another form, because pods of the name found here are let past the mesh.
func podName() parser {
	name := label(func(s *Settings) *string { return &s.PodName })
	set := name.apply
	name.apply = func(s *Settings, value string) error {
		if err := set(s, value); err != nil {
			return err
		}
		i := strings.LastIndexByte(value, '-')
		if s.AgentName == "" && i > 0 && len(value)-i-1 == 5 && strings.Trim(value[i+1:], generatedAlphabet) == "" {
			s.AgentName = value[:i]
		}
		return nil
	}
	return name
}

// generatedAlphabet are the characters of generated names (k8s.io/apimachinery/pkg/util/rand): no vowels, nothing that looks alike.
const generatedAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// checkName wants an RFC 1123 subdomain, which is what names of namespaces, pods and DaemonSets are at most.
func checkName(name string) error {
	const alphanumeric = "abcdefghijklmnopqrstuvwxyz0123456789"
	ok := len(name) <= maxName
	for part := range strings.SplitSeq(name, ".") {
		ok = ok && part != "" && strings.Trim(part, alphanumeric+"-") == "" && strings.Trim(part, "-") == part
	}
	if !ok {
		return fmt.Errorf("%q is not a Kubernetes name (lower-case letters, digits and dashes)", name)
	}
	return nil
}
