// SPDX-License-Identifier: Apache-2.0

package conflist_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist"
)

func tiny() conflist.Plugin { return conflist.Plugin{Type: "m", Body: json.RawMessage(`{"type":"m"}`)} }

// TestInsertAndRemoveByteByByte checks place and blanks of the entry, and that Remove undoes it.
func TestInsertAndRemoveByteByByte(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, doc, want string }{
		{"minified", `{"plugins":[{"type":"a"}]}`, `{"plugins":[{"type":"a"},{"type":"m"}]}`},
		{"blank after colons", `{"plugins": [{"type": "a"}]}`, `{"plugins": [{"type": "a"}, {"type": "m"}]}`},
		{"blanks between entries", `{"plugins":[{"type":"a"},  {"type":"b"}]}`, `{"plugins":[{"type":"a"},  {"type":"b"},  {"type":"m"}]}`},
		{"blanks before the bracket", `{"plugins":[{"type":"a"} ` + "\t" + `]}`, `{"plugins":[{"type":"a"},{"type":"m"} ` + "\t" + `]}`},
		{
			"one entry a line, bracket after it", "{\"plugins\": [\n  {\"type\": \"a\"}]}",
			"{\"plugins\": [\n  {\"type\": \"a\"},\n  {\"type\": \"m\"}]}",
		},
		{
			"tabs", "{\n\t\"plugins\": [\n\t\t{\n\t\t\t\"type\": \"a\"\n\t\t}\n\t]\n}",
			"{\n\t\"plugins\": [\n\t\t{\n\t\t\t\"type\": \"a\"\n\t\t},\n\t\t{\n\t\t\t\"type\": \"m\"\n\t\t}\n\t]\n}",
		},
		{
			"CRLF", "{\r\n \"plugins\": [\r\n  {\r\n   \"type\": \"a\"\r\n  }\r\n ]\r\n}\r\n",
			"{\r\n \"plugins\": [\r\n  {\r\n   \"type\": \"a\"\r\n  },\r\n  {\r\n   \"type\": \"m\"\r\n  }\r\n ]\r\n}\r\n",
		},
		{"old Mac line ends are blanks", "{\r\"plugins\":[\r{\"type\":\"a\"}\r]\r}", "{\r\"plugins\":[\r{\"type\":\"a\"},{\"type\":\"m\"}\r]\r}"},
		{
			"blank lines between entries", "{\"plugins\":[\n\n{\"type\":\"a\"}\n\n,\n\n\n{\"type\":\"b\"}\n\n]}",
			"{\"plugins\":[\n\n{\"type\":\"a\"}\n\n,\n\n\n{\"type\":\"b\"},\n{\"type\":\"m\"}\n\n]}",
		},
		{"empty array", `{"plugins":[]}`, `{"plugins":[{"type":"m"}]}`},
		{"empty array with blanks", `{"plugins":[ ` + "\t" + `]}`, `{"plugins":[{"type":"m"} ` + "\t" + `]}`},
		{
			"empty array with a line break", "{\n  \"plugins\": [\n  ]\n}",
			"{\n  \"plugins\": [{\n    \"type\": \"m\"\n  }\n  ]\n}",
		},
		{
			"empty array with a line for the entry", "{\n  \"plugins\": [\r\n    \r\n  ]\n}",
			"{\n  \"plugins\": [\r\n    {\n      \"type\": \"m\"\n    }\r\n  ]\n}",
		},
		{
			"blanks around the document", "\n\t{\"plugins\":[{\"type\":\"a\"}]} \n\n",
			"\n\t{\"plugins\":[{\"type\":\"a\"},{\"type\":\"m\"}]} \n\n",
		},
		{
			"entry with a member on the line of its bracket", "{\n  \"plugins\": [\n    {\"type\": \"a\",\n     \"x\": {}}\n  ]\n}",
			"{\n  \"plugins\": [\n    {\"type\": \"a\",\n     \"x\": {}},\n    {\n      \"type\": \"m\"\n    }\n  ]\n}",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := conflist.Insert([]byte(tc.doc), tiny())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got.Out)); diff != "" {
				t.Errorf("Insert (-want +got):\n%s", diff)
			}
			back, err := conflist.Remove(got.Out, "m")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.doc, string(back.Out)); diff != "" {
				t.Errorf("Remove after Insert (-want +got):\n%s", diff)
			}
			wantUnchanged(t, got.Out, tiny())
		})
	}
}

// TestInsertReplaces checks what happens to entries of ours that already exist.
func TestInsertReplaces(t *testing.T) {
	t.Parallel()
	body := conflist.Plugin{Type: "m", Body: json.RawMessage(`{"type":"m","v":2}`)}
	for _, tc := range []struct{ name, doc, want string }{
		{"last", `{"plugins":[{"type":"a"},{"type":"m","v":1}]}`, `{"plugins":[{"type":"a"},{"type":"m","v":2}]}`},
		{"in the middle", `{"plugins":[{"type":"a"} , {"type":"m"}, {"type":"b"}]}`, `{"plugins":[{"type":"a"} , {"type":"m","v":2}, {"type":"b"}]}`},
		{"first", `{"plugins":[{"type":"m"} , {"type":"a"}, {"type":"b"}]}`, `{"plugins":[{"type":"a"}, {"type":"b"}, {"type":"m","v":2}]}`},
		{"first, and right", `{"plugins":[ {"type":"m","v":2},{"type":"a"} ]}`, `{"plugins":[ {"type":"a"},{"type":"m","v":2} ]}`},
		{"the first two", `{"plugins":[{"type":"m"},{"type":"m"},{"type":"a"}]}`, `{"plugins":[{"type":"a"},{"type":"m","v":2}]}`},
		{"first, and in the middle", `{"plugins":[{"type":"m"},{"type":"a"},{"type":"m"},{"type":"b"}]}`, `{"plugins":[{"type":"a"},{"type":"m","v":2},{"type":"b"}]}`},
		{"alone", `{"plugins":[ {"type":"m"} ]}`, `{"plugins":[ {"type":"m","v":2} ]}`},
		{
			"two: the first place stays", `{"plugins":[{"type":"a"} ,{"type":"m","v":1},{"type":"b"} , {"type":"m","v":3} ]}`,
			`{"plugins":[{"type":"a"} ,{"type":"m","v":2},{"type":"b"} ]}`,
		},
		{
			"three, two of them equal to the new one", `{"plugins":[{"type":"m","v":2}, {"type":"m","v":1}, {"type":"m","v":2}]}`,
			`{"plugins":[{"type":"m","v":2}]}`,
		},
		{"type written with an escape", `{"plugins":[{"type":"\u006d"}]}`, `{"plugins":[{"type":"m","v":2}]}`},
		{
			"in its own style", "{\"plugins\":[{\"type\":\"a\"},{\n\t\"v\": 1,\n\t\"type\": \"m\"\n}]}",
			"{\"plugins\":[{\"type\":\"a\"},{\n\t\"type\": \"m\",\n\t\"v\": 2\n}]}",
		},
		{"another number that a float64 cannot tell apart", `{"plugins":[{"type":"m","v":2.0000000000000000001}]}`, `{"plugins":[{"type":"m","v":2}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := conflist.Insert([]byte(tc.doc), body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got.Out)); diff != "" || !got.Changed {
				t.Errorf("Changed %v, document (-want +got):\n%s", got.Changed, diff)
			}
			wantUnchanged(t, got.Out, body)
		})
	}
}

// TestInsertLeavesEqualEntry checks that an entry with equal content stays, however it is written.
func TestInsertLeavesEqualEntry(t *testing.T) {
	t.Parallel()
	p := conflist.Plugin{Type: "m", Body: json.RawMessage(`{"type":"m","list":[1,2],"text":"<é>"}`)}
	for _, doc := range []string{
		`{"plugins":[{"type":"a"},{"type":"m","list":[1,2],"text":"<é>"},{"type":"b"}]}`,
		"{\"plugins\":[{\"type\":\"a\"},{\n \"type\" : \"m\",\n \"list\":[1,\n2],\"text\":\"<é>\"}]}",
		`{"plugins":[{"list":[1,2],"text":"\u003c\u00e9\u003e","type":"m"}]}`,
	} {
		wantUnchanged(t, []byte(doc), p)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, doc, want string }{
		{"none", `{"plugins":[{"type":"a"}]}`, `{"plugins":[{"type":"a"}]}`},
		{"none, empty", `{"plugins":[ ]}`, `{"plugins":[ ]}`},
		{"none, a single configuration", `{"type":"a"}`, `{"type":"a"}`},
		{"last", `{"plugins":[ {"type":"a"} , {"type":"m"} ]}`, `{"plugins":[ {"type":"a"} ]}`},
		{"first", `{"plugins":[ {"type":"m"} , {"type":"a"} ]}`, `{"plugins":[ {"type":"a"} ]}`},
		{"between", `{"plugins":[ {"type":"a"} , {"type":"m"}, {"type":"b"} ]}`, `{"plugins":[ {"type":"a"}, {"type":"b"} ]}`},
		{"alone: an empty list is left", `{"plugins":[ {"type":"m"}` + "\t" + `]}`, `{"plugins":[ ` + "\t" + `]}`},
		{"all of several", `{"plugins":[ {"type":"m"} , {"type":"m","v":1} ]}`, `{"plugins":[  ]}`},
		{
			"several here and there", `{"plugins":[ {"type":"m"} , {"type":"m"},{"type":"a"} ,{"type":"m"} ,{"type":"b"},{"type":"m"} ]}`,
			`{"plugins":[ {"type":"a"} ,{"type":"b"} ]}`,
		},
		{"only in the top-level array", `{"plugins":[{"type":"a","plugins":[{"type":"m"}]}]}`, `{"plugins":[{"type":"a","plugins":[{"type":"m"}]}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := conflist.Remove([]byte(tc.doc), "m")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got.Out)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.Changed != (tc.doc != tc.want) || got.Lifted {
				t.Errorf("Changed %v, Lifted %v", got.Changed, got.Lifted)
			}
		})
	}
}

// TestRemoveThenInsert checks that a hand-formatted last or only entry returns to its place.
func TestRemoveThenInsert(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		"{\n  \"plugins\": [\n    {\n      \"type\": \"m\"\n    }\n  ]\n}\n",
		"{\n  \"plugins\": [\n    {\n      \"type\": \"a\"\n    },\n    {\n      \"type\": \"m\"\n    }\n  ]\n}\n",
		`{"plugins":[{"type":"m"}]}`,
	} {
		removed, err := conflist.Remove([]byte(doc), "m")
		if err != nil {
			t.Fatal(err)
		}
		back, err := conflist.Insert(removed.Out, tiny())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(doc, string(back.Out)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, doc, want string }{
		{"the first of two", `{"plugins":[{"type":"a"},{"type":"m", "v":1},{"type":"m"}]}`, `{"type":"m", "v":1}`},
		{"type with an escape", `{"plugins":[{"type":"\u006D"}]}`, `{"type":"\u006D"}`},
		{"the single configuration", ` {"name":"n","type":"m"} `, `{"name":"n","type":"m"}`},
		{"not there", `{"plugins":[{"type":"a"}]}`, ""},
		{"only nested", `{"plugins":[{"type":"a","m":{"type":"m"}}], "x":{"plugins":[{"type":"m"}]}}`, ""},
		{"another single configuration", `{"type":"a"}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			doc := []byte(tc.doc)
			got, ok, err := conflist.Find(doc, "m")
			if err != nil {
				t.Fatal(err)
			}
			clear(doc) // the result of Find must not share memory with the document
			want := conflist.Plugin{}
			if tc.want != "" {
				want = conflist.Plugin{Type: "m", Body: json.RawMessage(tc.want)}
			}
			if diff := cmp.Diff(want, got); diff != "" || ok != (tc.want != "") {
				t.Errorf("ok %v (-want +got):\n%s", ok, diff)
			}
		})
	}
}

// TestDocumentIsNotWritten checks that the input survives, even where Out could have used it.
func TestDocumentIsNotWritten(t *testing.T) {
	t.Parallel()
	const text = `{"plugins":[{"type":"a"},{"type":"m","v":1},{"type":"m"}]}`
	doc := append(make([]byte, 0, 4096), text...)
	if _, err := conflist.Insert(doc, tiny()); err != nil {
		t.Fatal(err)
	}
	if _, err := conflist.Remove(doc, "m"); err != nil {
		t.Fatal(err)
	}
	if string(doc) != text {
		t.Errorf("the document became %s", doc)
	}
}

func TestInsertRefusesEntries(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, typ, body, want string }{
		{"nothing", "m", ``, "unexpected end of JSON input"},
		{"not an object", "m", `["m"]`, "not an object"},
		{"two values", "m", `{"type":"m"} {}`, "after top-level value"},
		{"no type", "m", `{"name":"m"}`, `has no "type"`},
		{"empty type", "", `{"type":""}`, "is empty"},
		{"another type", "m", `{"type":"n"}`, `"n" and Type is "m"`},
		{"a path", "../x", `{"type":"../x"}`, "is a path"},
		{"a directory", "..", `{"type":".."}`, "is a path"},
		{"two types", "m", `{"type":"m","type":"m"}`, "appears twice"},
		{"too large", "m", `{"type":"m","x":"` + strings.Repeat("x", conflist.MaxSize) + `"}`, "larger than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := conflist.Plugin{Type: tc.typ, Body: json.RawMessage(tc.body)}
			_, err := conflist.Insert([]byte(`{"plugins":[]}`), p)
			if !errors.Is(err, conflist.ErrPlugin) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want ErrPlugin with %q", err, tc.want)
			}
		})
	}
}

// TestInsertRefusesResults checks that a document that could not be parsed again is not returned.
func TestInsertRefusesResults(t *testing.T) {
	t.Parallel()
	full := `{"plugins":[]` + strings.Repeat(" ", conflist.MaxSize-20) + `}`
	blanks := strings.Repeat(" ", conflist.MaxSize/2)
	deep := `{"type":"m","x":` + strings.Repeat("[", conflist.MaxDepth-1) + strings.Repeat("]", conflist.MaxDepth-1) + `}`
	for _, tc := range []struct{ name, doc, body string }{
		{"too large", full, `{"type":"m"}`},
		{"too large when laid out", "{\n\"plugins\":[]," + blanks + "\"x\":1\n}", `{"type":"m","x":[` + strings.Repeat("0,", conflist.MaxSize/3) + `0]}`},
		{"too deep", `{"plugins":[]}`, deep},
		{"a lifted one that is too large", `{"name":"n","type":"a"` + strings.Repeat(" ", conflist.MaxSize-23) + `}`, `{"type":"m"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := conflist.Insert([]byte(tc.doc), conflist.Plugin{Type: "m", Body: json.RawMessage(tc.body)})
			var syntax *conflist.SyntaxError
			if !errors.As(err, &syntax) {
				t.Errorf("got %v, want a SyntaxError", err)
			}
		})
	}
}

// TestInsertWideIndentation checks that indentation is imitated only up to a limit.
func TestInsertWideIndentation(t *testing.T) {
	t.Parallel()
	wide := "\n" + strings.Repeat(" ", 100_000)
	doc := []byte(`{"plugins":[` + wide + `{` + wide + `"type":"a"` + wide + `}` + wide + `]}`)
	got, err := conflist.Insert(doc, mesh())
	if err != nil {
		t.Fatal(err)
	}
	if added := len(got.Out) - len(doc); added > 1000 {
		t.Errorf("Insert added %d bytes", added)
	}
	back, err := conflist.Remove(got.Out, "istio-cni")
	if err != nil || !bytes.Equal(back.Out, doc) {
		t.Errorf("Remove does not give the document back: %v", err)
	}
}
