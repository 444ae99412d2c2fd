// SPDX-License-Identifier: Apache-2.0

package conflist_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist"
)

type liftCase struct{ name, doc, want string }

func liftCases() []liftCase {
	return []liftCase{
		{
			"minified", `{"cniVersion":"0.2.0","name":"n","type":"a"}`,
			`{"cniVersion":"0.2.0","name":"n","plugins":[{"cniVersion":"0.2.0","name":"n","type":"a"},{"type":"m"}]}`,
		},
		{"no version", `{"type": "a", "name": "n"}`, `{"name": "n", "plugins": [{"type": "a", "name": "n"}, {"type": "m"}]}`},
		{
			"version and name as they are written", "\t{\"\\u006eame\": \"\\u006e\", \"type\": \"a\", \"cniVersion\":  \"1.1.0\"}\n",
			"\t{\"cniVersion\": \"1.1.0\", \"\\u006eame\": \"\\u006e\", \"plugins\": " +
				"[{\"\\u006eame\": \"\\u006e\", \"type\": \"a\", \"cniVersion\":  \"1.1.0\"}, {\"type\": \"m\"}]}\n",
		},
		{
			"lines", "{\r\n \"name\": \"n\",\r\n \"type\": \"a\"\r\n}\r\n",
			"{\r\n \"name\": \"n\",\r\n \"plugins\": [\r\n  {\r\n \"name\": \"n\",\r\n \"type\": \"a\"\r\n},\r\n  {\r\n   \"type\": \"m\"\r\n  }\r\n ]\r\n}\r\n",
		},
		{
			"keys that are a list's only in a list stay inside", `{"name":"n","type":"a","cniVersions":["1.0.0"],"disableCheck":true}`,
			`{"name":"n","plugins":[{"name":"n","type":"a","cniVersions":["1.0.0"],"disableCheck":true},{"type":"m"}]}`,
		},
	}
}

func TestLift(t *testing.T) {
	t.Parallel()
	for _, tc := range liftCases() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := conflist.Insert([]byte(tc.doc), tiny())
			if err != nil {
				t.Fatal(err)
			}
			if !got.Changed || !got.Lifted {
				t.Errorf("Changed %v, Lifted %v; want both", got.Changed, got.Lifted)
			}
			if diff := cmp.Diff(tc.want, string(got.Out)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			wantUnchanged(t, got.Out, tiny())
		})
	}
}

// TestLiftKeepsEveryVersion checks that no version of the specification is raised or lowered.
func TestLiftKeepsEveryVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", "9.0.0"} {
		doc := []byte(`{"cniVersion":"` + version + `","name":"n","type":"a"}`)
		got, err := conflist.Insert(doc, tiny())
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"cniVersion":"` + version + `","name":"n","plugins"`; !strings.HasPrefix(string(got.Out), want) {
			t.Errorf("version %q: %s", version, got.Out)
		}
	}
}

func TestLiftRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, doc, want string }{
		{"no name", ` {"type":"a"}`, `line 1, column 2: the single configuration has no "name"`},
		{"empty name", `{"type":"a","name":""}`, `line 1, column 20: the single configuration has no "name"`},
		{"name that is no string", `{"type":"a","name":1}`, `line 1, column 20: "name" is not a string`},
		{"version that is no string", `{"type":"a","name":"n","cniVersion":null}`, `line 1, column 37: "cniVersion" is not a string`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := conflist.Insert([]byte(tc.doc), tiny())
			var syntax *conflist.SyntaxError
			if !errors.As(err, &syntax) || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// TestOwnSingleConfiguration checks that a plugin is neither chained to itself nor removed from a
// file that is all its own.
func TestOwnSingleConfiguration(t *testing.T) {
	t.Parallel()
	doc := []byte(`{"name":"n","type":"m"}`)
	if _, err := conflist.Insert(doc, tiny()); !errors.Is(err, conflist.ErrStandalone) {
		t.Errorf("Insert: %v, want ErrStandalone", err)
	}
	if _, err := conflist.Remove(doc, "m"); !errors.Is(err, conflist.ErrStandalone) {
		t.Errorf("Remove: %v, want ErrStandalone", err)
	}
}
