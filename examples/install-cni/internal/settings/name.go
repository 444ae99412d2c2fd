// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const (
	// dnsName is the pattern of an RFC 1123 subdomain, which every name of a namespace, a pod or a
	// DaemonSet matches.
	dnsName = dnsLabel + `(\.` + dnsLabel + `)*`
	// dnsLabel is the pattern of one label in it.
	dnsLabel = `[a-z0-9]([a-z0-9-]*[a-z0-9])?`
	// maxName is the maximum length of a Kubernetes name.
	maxName = 253
)

// nameShape is the shape of a Kubernetes name, which may be empty if it is optional.
func nameShape(optional bool) shape {
	pattern := dnsName
	if optional {
		pattern = "(" + pattern + ")?"
	}
	return shape{Type: "string", Pattern: "^" + pattern + "$", MaxLength: maxName}
}

// checkName accepts a Kubernetes name.
func checkName(name string) error {
	if matched, err := regexp.MatchString("^"+dnsName+"$", name); err != nil || !matched || len(name) > maxName {
		return fmt.Errorf("%q is not a Kubernetes name (lower-case letters, digits and dashes)", name)
	}
	return nil
}

// label parses the name of a Kubernetes object, or nothing.
func label(of func(*Settings) *string) parser {
	return checked("name", nameShape(true), of, func(value string) error {
		if value == "" {
			return nil
		}
		return checkName(value)
	})
}

// namespaces parses a list; spaces around its members and empty members are ignored.
func namespaces(of func(*Settings) *[]string) parser {
	return list("list", nameShape(false), of, atCommas, func(name string) (string, error) { return name, checkName(name) })
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

// labelName is the pattern of a label's value, and of a key without its domain
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set).
const labelName = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"

// labelKey parses the key of a label: a name, optionally preceded by a domain and a slash.
func labelKey(of func(*Settings) *string) parser {
	return key(of, "^("+dnsName+"/)?"+labelName+"$", "write a key such as example.com/name")
}

// taintKey parses the key of a taint, or nothing. The key must have a domain, so that it is no
// other program's.
func taintKey() parser {
	of := func(s *Settings) *string { return &s.ReadinessTaint }
	return key(of, "^("+dnsName+"/"+labelName+")?$", "write a key with a domain, such as meshcni.io/not-ready")
}

// key parses a key that matches a pattern, and whose domain is no longer than a Kubernetes name.
func key(of func(*Settings) *string, pattern, remedy string) parser {
	p := matching("key", shape{Type: "string", Pattern: pattern, MaxLength: maxName + 64}, of, remedy)
	set := p.apply
	p.apply = func(s *Settings, value string) error {
		if strings.IndexByte(value, '/') > maxName {
			return errors.New(remedy)
		}
		return set(s, value)
	}
	return p
}

func labelValue(of func(*Settings) *string) parser {
	value := shape{Type: "string", Pattern: `^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$`, MaxLength: 63}
	return matching("label", value, of, "write at most 63 letters, digits, and among these dashes, dots and underscores")
}
