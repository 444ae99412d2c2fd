// SPDX-License-Identifier: Apache-2.0

package conflist_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist"
)

// TestRefusedDocuments checks position and reason of every refusal, by all three functions.
func TestRefusedDocuments(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", conflist.MaxDepth)
	for _, tc := range []struct{ name, doc, want string }{
		{"nothing", "", `line 1, column 1: unexpected end of JSON input`},
		{"blanks only", " \n ", `line 2, column 1: unexpected end of JSON input`},
		{"not an object", "[]", `line 1, column 1: the document is not an object`},
		{"byte order mark", "\ufeff{}", `line 1, column 1: the document starts with a byte order mark`},
		{"other bytes", "\xff\xfe{", `line 1, column 1: invalid character 'ÿ' looking for beginning of value`},
		{"no end", "{\"plugins\": [\n{\"type\": \"a\"}", `line 2, column 13: unexpected end of JSON input`},
		{"no value", `{"name":`, `line 1, column 8: unexpected end of JSON input`},
		{"comment", "{\n  // mine\n}", `line 2, column 3: invalid character '/' looking for beginning of object key string`},
		{"comma before a brace", "{\"name\": \"n\",\n}", `line 2, column 1: invalid character '}' looking for beginning of object key string`},
		{"comma before a bracket", `{"plugins": [{"type": "a"},]}`, `line 1, column 28: invalid character ']' looking for beginning of value`},
		{"two commas", `{"plugins": [{"type": "a"},,{"type": "b"}]}`, `line 1, column 28: invalid character ',' looking for beginning of value`},
		{"comma at the end", `{"plugins": [],`, `line 1, column 15: unexpected end of JSON input`},
		{"no comma", "{\n\"name\": \"n\"\r\n \"plugins\": []}", `line 3, column 2: invalid character '"' after object key:value pair`},
		{"no colon", `{"plugins" []}`, `line 1, column 12: invalid character '[' after object key`},
		{"key without quotes", `{plugins: []}`, `line 1, column 2: invalid character 'p' looking for beginning of object key string`},
		{"single quotes", `{'plugins': []}`, `line 1, column 2: invalid character '\'' looking for beginning of object key string`},
		{"wrong bracket", `{"plugins": [}`, `line 1, column 14: invalid character '}' looking for beginning of value`},
		{"string without end", "{\"plugins\": [], \"x\": \"abc", `line 1, column 25: unexpected end of JSON input`},
		{"line break in a string", "{\"plugins\": [], \"x\": \"a\nb\"}", `line 1, column 24: invalid character '\n' in string literal`},
		{"unknown escape", `{"x": "a\x41"}`, `line 1, column 10: invalid character 'x' in string escape code`},
		{"short escape", `{"x": "\u12g4"}`, `line 1, column 12: invalid character 'g' in \u hexadecimal character escape`},
		{"escape at the end", `{"x": "\`, `line 1, column 8: invalid character ' ' in string escape code`},
		{"leading zero", `{"x": 01}`, `line 1, column 8: invalid character '1' after object key:value pair`},
		{"plus", `{"x": +1}`, `line 1, column 7: invalid character '+' looking for beginning of value`},
		{"no digit after the point", `{"x": 1.}`, `line 1, column 9: invalid character '}' after decimal point in numeric literal`},
		{"no digit before the point", `{"x": .5}`, `line 1, column 7: invalid character '.' looking for beginning of value`},
		{"no exponent", `{"x": 1e+}`, `line 1, column 10: invalid character '}' in exponent of numeric literal`},
		{"only a sign", `{"x": -}`, `line 1, column 8: invalid character '}' in numeric literal`},
		{"word", `{"x": NaN}`, `line 1, column 7: invalid character 'N' looking for beginning of value`},
		{"half a word", `{"x": tru}`, `line 1, column 10: invalid character '}' in literal true (expecting 'e')`},
		{"trailing data", "{\"plugins\": []}\n{}", `line 2, column 1: invalid character '{' after top-level value`},
		{"a zero byte at the end", "{\"plugins\": []}\x00", `line 1, column 16: invalid character '\x00' after top-level value`},
		{"too deep", `{"x": ` + deep, `line 1, column 134: nested deeper than 128 levels`},
		{"too large", `{"plugins": []}` + strings.Repeat("\n", conflist.MaxSize), `line 1048562, column 1: larger than 1048576 bytes`},
		{"neither", " {\"name\": \"n\"}", `line 1, column 2: the document has neither "plugins" nor "type"`},
		{"both", `{"type": "a", "plugins": []}`, `line 1, column 2: the document has "plugins" and "type"`},
		{"plugins twice", `{"plugins": [], "plugins": []}`, `line 1, column 17: the key "plugins" appears twice`},
		{"plugins twice, once escaped", `{"plugins": [], "plu\u0067ins": []}`, `line 1, column 17: the key "plugins" appears twice`},
		{"type twice", "{\"type\": \"a\",\n\"type\": \"a\"}", `line 2, column 1: the key "type" appears twice`},
		{"name twice", `{"name": "a", "plugins": [], "name": "b"}`, `line 1, column 30: the key "name" appears twice`},
		{"version twice", `{"cniVersion": "1.0.0", "cniVersion": "0.1.0"}`, `line 1, column 25: the key "cniVersion" appears twice`},
		{"plugins in another case", `{"Plugins": [{"type": "a"}]}`, `line 1, column 2: the key "Plugins" differs from "plugins" in case only`},
		{"type in another case", `{"name": "n", "type": "a", "TYPE": "b"}`, `line 1, column 28: the key "TYPE" differs from "type" in case only`},
		{"version with a long s", `{"cniVer\u017fion": "1.0.0", "plugins": []}`, `line 1, column 2: the key "cniVerſion" differs from "cniVersion" in case`},
		{"plugins is an object", `{"plugins": {"type": "a"}}`, `line 1, column 13: "plugins" is not an array`},
		{"plugins is null", `{"plugins": null}`, `line 1, column 13: "plugins" is not an array`},
		{"entry is a string", "{\"plugins\": [\n{\"type\": \"a\"}, \"b\"]}", `line 2, column 16: a plugin's entry is not an object`},
		{"entry without type", `{"plugins": [{"type": "a"}, {"name": "b"}]}`, `line 1, column 29: a plugin's entry has no "type"`},
		{"entry is empty", `{"plugins": [{}]}`, `line 1, column 14: a plugin's entry has no "type"`},
		{"entry with a number as type", `{"plugins": [{"type": 1}]}`, `line 1, column 23: the "type" of a plugin's entry is not a string`},
		{"entry with an empty type", `{"plugins": [{"type": ""}]}`, `line 1, column 23: the "type" of a plugin's entry is empty`},
		{"entry with two types", `{"plugins": [{"type": "a", "type": "a"}]}`, `line 1, column 28: the key "type" appears twice`},
		{"entry with a Type", `{"plugins": [{"Type": "a"}]}`, `line 1, column 15: the key "Type" differs from "type" in case only`},
		{"single configuration with a null type", `{"type": null}`, `line 1, column 10: the "type" of a plugin's entry is not a string`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			doc := []byte(tc.doc)
			_, insertErr := conflist.Insert(doc, tiny())
			_, removeErr := conflist.Remove(doc, "m")
			_, _, findErr := conflist.Find(doc, "m")
			for _, err := range []error{insertErr, removeErr, findErr} {
				var syntax *conflist.SyntaxError
				if !errors.As(err, &syntax) || !strings.HasPrefix(err.Error(), tc.want) {
					t.Errorf("got  %v\nwant %s", err, tc.want)
				}
			}
			if string(doc) != tc.doc {
				t.Error("the document has changed")
			}
		})
	}
}

func TestErrorsToBranchOn(t *testing.T) {
	t.Parallel()
	_, err := conflist.Insert([]byte("{\n \"name\": \"drop-ins-only\"\n}"), tiny())
	var syntax *conflist.SyntaxError
	if !errors.Is(err, conflist.ErrNoPlugins) || !errors.As(err, &syntax) {
		t.Fatalf("got %v, want a SyntaxError that is ErrNoPlugins", err)
	}
	want := &conflist.SyntaxError{Line: 1, Column: 1, Err: conflist.ErrNoPlugins}
	if diff := cmp.Diff(want.Error(), syntax.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if errors.Is(errors.Join(err), conflist.ErrStandalone) {
		t.Error("a document without plugins is taken for a standalone configuration")
	}
}
