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
		{"nothing", "", `line 1, column 1: the document ends where { should be`},
		{"blanks only", " \n ", `line 2, column 2: the document ends where { should be`},
		{"not an object", "[]", `line 1, column 1: found '[' where { should be`},
		{"byte order mark", "\ufeff{}", `line 1, column 1: the document starts with a byte order mark`},
		{"other bytes", "\xff\xfe{", `line 1, column 1: found '�' where { should be`},
		{"no end", "{\"plugins\": [\n{\"type\": \"a\"}", `line 2, column 14: the document ends where a comma or ] should be`},
		{"no value", `{"name":`, `line 1, column 9: the document ends where a value should be`},
		{"comment", "{\n  // mine\n}", `line 2, column 3: found '/' where a key should be`},
		{"comma before a brace", "{\"name\": \"n\",\n}", `line 2, column 1: found '}' where a key should be`},
		{"comma before a bracket", `{"plugins": [{"type": "a"},]}`, `line 1, column 28: found ']' where a value should be`},
		{"two commas", `{"plugins": [{"type": "a"},,{"type": "b"}]}`, `line 1, column 28: found ',' where a value should be`},
		{"comma at the end", `{"plugins": [],`, `line 1, column 16: the document ends where a key or } should be`},
		{"no comma", "{\n\"name\": \"n\"\r\n \"plugins\": []}", `line 3, column 2: found '"' where a comma or } should be`},
		{"no colon", `{"plugins" []}`, `line 1, column 12: found '[' where a colon should be`},
		{"key without quotes", `{plugins: []}`, `line 1, column 2: found 'p' where a key should be`},
		{"single quotes", `{'plugins': []}`, `line 1, column 2: found '\'' where a key should be`},
		{"wrong bracket", `{"plugins": [}`, `line 1, column 14: found '}' where a value should be`},
		{"string without end", "{\"plugins\": [], \"x\": \"abc", `line 1, column 22: this string has no end`},
		{"line break in a string", "{\"plugins\": [], \"x\": \"a\nb\"}", `line 1, column 24: control character '\n' in a string`},
		{"unknown escape", `{"x": "a\x41"}`, `line 1, column 9: invalid escape`},
		{"short escape", `{"x": "\u12g4"}`, `line 1, column 8: invalid escape: \u takes four`},
		{"escape at the end", `{"x": "\`, `line 1, column 8: invalid escape`},
		{"leading zero", `{"x": 01}`, `line 1, column 8: found '1' where a comma or } should be`},
		{"plus", `{"x": +1}`, `line 1, column 7: found '+' where a value should be`},
		{"no digit behind the point", `{"x": 1.}`, `line 1, column 9: found '}' where a digit should be`},
		{"no digit before the point", `{"x": .5}`, `line 1, column 7: found '.' where a value should be`},
		{"no exponent", `{"x": 1e+}`, `line 1, column 10: found '}' where a digit should be`},
		{"only a sign", `{"x": -}`, `line 1, column 8: found '}' where a digit should be`},
		{"word", `{"x": NaN}`, `line 1, column 7: found 'N' where a value should be`},
		{"half a word", `{"x": tru}`, `line 1, column 7: found 't' where a value should be`},
		{"trailing data", "{\"plugins\": []}\n{}", `line 2, column 1: found '{' where the end of the document should be`},
		{"a zero byte behind", "{\"plugins\": []}\x00", `line 1, column 16: found '\x00' where the end of the document should be`},
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
