// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"strings"
)

// manual returns docs/settings.md, which begins with head.
func manual(head string) string {
	var out strings.Builder
	out.WriteString(head)
	group := Group("")
	for _, s := range All() {
		if s.Inert {
			continue
		}
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&out, "\n## %s\n\n| setting | type | default | live | meaning | key |\n|---|---|---|---|---|---|\n", group)
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s | `%s` |\n", s.Name, s.kind, code(s.Default), yes(s.Live), s.meaning(), s.Key())
	}
	fmt.Fprintf(&out, "\n## %s\n\nThese of Istio's are accepted and have no effect; the log names those that were changed:\n\n"+
		"| setting | why |\n|---|---|\n", NoEffect)
	for _, s := range All() {
		if s.Inert {
			fmt.Fprintf(&out, "| `%s` | %s |\n", s.Name, s.Usage)
		}
	}
	return out.String()
}

// meaning returns the usage, with the other names of the variable.
func (s Setting) meaning() string {
	if len(s.OtherEnv) == 0 {
		return s.Usage
	}
	return s.Usage + "; also " + code(s.OtherEnv...)
}

func code(words ...string) string {
	var quoted []string
	for _, word := range words {
		if word != "" {
			quoted = append(quoted, "`"+word+"`")
		}
	}
	return strings.Join(quoted, ", ")
}

func yes(b bool) string {
	if b {
		return "live"
	}
	return ""
}
