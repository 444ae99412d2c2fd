// SPDX-License-Identifier: Apache-2.0

//go:build !js

package kubeconfig

import (
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// FuzzScalar checks that the YAML parser of kubectl and client-go reads every text back, as a
// value, as an element and as a nested key's value.
func FuzzScalar(f *testing.F) {
	for _, text := range []string{
		"", "a", "null", "~", "y", "0x1f", "1_000", "12:30:45", "2001-01-01", "=", "<<", "a:b", "a: b", "a:", "#", "a #", "-", "- a", "? a", "|", "> ", "'", `"`, `\`,
		"\n", "\r\n", "\t", "\x00", "\x1b", "\x7f", "\u0085", "\u00a0", "\u2028", "\u2029", "\ufeff", "\ufffe", "ä", "🕸", "\U0010ffff", " a ", "%a", "@a", "`a", "{a}", "[a]",
		"&a", "*a", "!a", "---", "...", "e1", "Infinity", "NaN",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			t.Skip("Build refuses what is not UTF-8")
		}
		doc := "list:\n- name: " + scalar(text) + "\n  deep:\n    value: " + scalar(text) + "\nlast: " + scalar(text) + "\n"
		var got struct {
			List []struct {
				Name any `json:"name"`
				Deep struct {
					Value any `json:"value"`
				} `json:"deep"`
			} `json:"list"`
			Last any `json:"last"`
		}
		if err := yaml.Unmarshal([]byte(doc), &got); err != nil {
			t.Fatalf("%v: %q", err, doc)
		}
		if len(got.List) != 1 || got.List[0].Name != text || got.List[0].Deep.Value != text || got.Last != text {
			t.Fatalf("%q is read as %+v from %q", text, got, doc)
		}
	})
}
