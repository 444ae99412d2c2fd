// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"strings"
)

// label parses the name of a Kubernetes object, or nothing.
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

// nameShape is the shape of a Kubernetes name, which may be empty if it is optional.
func nameShape(optional bool) shape {
	const part = `[a-z0-9]([a-z0-9-]*[a-z0-9])?`
	pattern := part + `(\.` + part + `)*`
	if optional {
		pattern = "(" + pattern + ")?"
	}
	return shape{Type: "string", Pattern: "^" + pattern + "$", MaxLength: maxName}
}

// maxName is the maximum length of a Kubernetes name.
const maxName = 253

// namespaces parses a list; spaces around its members and empty members are ignored.
func namespaces(of func(*Settings) *[]string) parser {
	item := nameShape(false)
	return list("list", item, of, func(name string) (string, error) { return name, checkName(name) })
}

// podName derives the DaemonSet's name if it is not set: the name of a DaemonSet's pod is the
// DaemonSet's, a dash, and five random characters. Names of another form are not used, because the
// plugin lets pods of the derived name pass uncaptured.
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

// generatedAlphabet are the characters of generated names (k8s.io/apimachinery/pkg/util/rand): no
// vowels, and no characters that look alike.
const generatedAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// checkName accepts an RFC 1123 subdomain: names of namespaces, pods and DaemonSets allow no more
// than that.
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
