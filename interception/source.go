// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Source is the origin of a parameter's value: the provenance of a rule. Its texts come from the
// pod. They are meant for humans and never reach the kernel.
type Source struct {
	// Kind is the kind of the key.
	Kind SourceKind `json:"kind"`
	// Key is the name of the annotation, label or variable, or the path of a field.
	Key string `json:"key"`
	// Value is the value as written in the pod.
	Value string `json:"value"`
}

// SourceKind is the kind of a [Source].
type SourceKind string

// The kinds of sources.
const (
	// SourceDefault is a dialect's default; Key is the key that was absent.
	SourceDefault SourceKind = "default"
	// SourceAnnotation is a pod annotation.
	SourceAnnotation SourceKind = "annotation"
	// SourceLabel is a pod label.
	SourceLabel SourceKind = "label"
	// SourceEnv is an environment variable of the proxy container.
	SourceEnv SourceKind = "env"
	// SourceField is a field of the Pod, such as securityContext.runAsUser.
	SourceField SourceKind = "field"
	// SourceDialect is a rule of the dialect itself, which no pod can change. Key says which rule.
	SourceDialect SourceKind = "dialect"
)

// String returns kind, key and quoted value, such as `annotation example.com/ports="80"`. It quotes
// also a key with characters that do not print, which could forge lines or control a terminal.
func (s Source) String() string {
	return string(s.Kind) + " " + shownKey(s.Key) + "=" + strconv.Quote(s.Value)
}

// shownKey quotes a key that holds what no key of Kubernetes does.
func shownKey(key string) string {
	for _, c := range key {
		if !strconv.IsPrint(c) || c == utf8.RuneError {
			return quoteBriefly(key)
		}
	}
	return key
}

// shown is how many bytes of a value messages show at most. An annotation can have 256 KiB.
const shown = 256

// brief returns kind, key and value as String does. Of a long value it shows the beginning, with
// the length of the whole.
func (s Source) brief() string {
	return fmt.Sprintf("%s %s=%s", s.Kind, shownKey(s.Key), quoteBriefly(s.Value))
}

// quoteBriefly quotes a text. Of a long one it quotes the beginning, and adds the length of the
// whole.
func quoteBriefly(text string) string {
	if len(text) <= shown {
		return strconv.Quote(text)
	}
	end := shown
	for end > shown-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%q… (%d bytes)", text[:end], len(text))
}

// Warning is about a setting of a pod that does not have the effect its author may expect.
type Warning struct {
	// Source is the key with its value; for an init container, the field and the container's name.
	Source Source
	// Reason says why, and what would have the effect.
	Reason string
}

// String returns the key with its value, of which it shows the first 256 bytes, and the reason.
func (w Warning) String() string { return w.Source.brief() + ": " + w.Reason }
