// SPDX-License-Identifier: Apache-2.0

package jsonreader_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/internal/jsonreader"
)

type everything struct {
	Text   string            `json:"text"`
	Bool   bool              `json:"bool"`
	Number int64             `json:"number"`
	ID     *int64            `json:"id"`
	List   []string          `json:"list"`
	Map    map[string]string `json:"map"`
	Raw    json.RawMessage   `json:"raw"`
	Inner  []inner           `json:"inner"`
}

type inner struct {
	Name string `json:"name"`
}

func (e *everything) read(r *jsonreader.Reader) {
	r.Object(
		jsonreader.Member{Name: "text", To: &e.Text}, jsonreader.Member{Name: "bool", To: &e.Bool},
		jsonreader.Member{Name: "number", To: &e.Number}, jsonreader.Member{Name: "id", To: &e.ID},
		jsonreader.Member{Name: "list", To: &e.List}, jsonreader.Member{Name: "map", To: &e.Map},
		jsonreader.Member{Name: "raw", To: func(r *jsonreader.Reader) { e.Raw = r.Raw() }},
		jsonreader.Member{Name: "inner", To: func(r *jsonreader.Reader) {
			e.Inner = []inner{}
			r.List(func() {
				var i inner
				r.Object(jsonreader.Member{Name: "name", To: &i.Name})
				e.Inner = append(e.Inner, i)
			})
		}},
	)
}

// check reads a text, and compares what came of it with what encoding/json makes of it.
func check(t *testing.T, text []byte) (understood bool) {
	t.Helper()
	var got, want everything
	if !jsonreader.Read(text, got.read) {
		return false
	}
	if err := json.Unmarshal(text, &want); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q\ngot  %+v\nwant %+v, %v", text, got, want, err)
	}
	return true
}

func usual() []string {
	return []string{
		`{}`, ` { } `, `{"text": "a", "bool": true, "number": -12, "id": 7, "list": ["a", ""], "map": {"a": "b", "": "c"}}`,
		`{"bool":false,"number":0,"list":[],"map":{},"inner":[],"raw":null}`, `{"inner": [{"name": "a", "x": [1]}, {}], "raw": {"a" : [1, 2.5e+3]}}`,
		`{"text": "\"\\\/\b\f\n\r\tэ\u2028\u003c", "map": {"\u0061": "ключ"}, "map2": null}`, `{"number": -0, "raw" : "x" }`, "{\t\"id\"\r:\n9223372036854775807}",
		`{"x": [{"y": "\u00e9", "z": [true, false, null, 0.1, 1E-2, -1]}], "text": "<&>"}`, `{"map": {"a": "1", "a": "2"}}`,
	}
}

func unusual() []string {
	return []string{
		``, `null`, `[]`, `{`, `{}}`, `{"text"}`, `{"text":}`, `{"text": "a",}`, `{,}`, `{"text": null}`, `{"Text": "a"}`, `{"text": "a", "text": "b"}`,
		`{"text": 1}`, `{"bool": "true"}`, `{"bool": tru}`, `{"number": 1.0}`, `{"number": 1e2}`, `{"number": 01}`, `{"number": -}`, `{"number": 9223372036854775808}`,
		`{"id": null}`, `{"list": null}`, `{"list": [null]}`, `{"list": ["a" "b"]}`, `{"map": {"a": 1}}`, `{"text": "\x"}`, `{"text": "\u12"}`, `{"text": "\ud800"}`,
		`{"x": "\x"}`, `{"x": 1.}`, `{"x": +1}`, `{"x": 1e}`, `{"x": nul}`, "{\"text\": \"\x01\"}", "{\"text\": \"\xff\"}", `{"text": "a`, `{"text": "a\`, `{"text": "a\"`,
		`{"ſ": 1, "liſt": []}`, `{"raw": }`, strings.Repeat(`{"x":`, 1001) + "1" + strings.Repeat("}", 1001), `{"text": "\u+041"}`, `{"text": "\u0_41"}`,
	}
}

func TestReadsWhatUnmarshalDoes(t *testing.T) {
	t.Parallel()
	for _, text := range usual() {
		if !check(t, []byte(text)) {
			t.Errorf("%s is not understood", text)
		}
	}
	for _, text := range unusual() {
		if check(t, []byte(text)) {
			t.Errorf("%s is understood, and should be left to encoding/json", text)
		}
	}
}

func TestUnknownTargetIsNotUnderstood(t *testing.T) {
	t.Parallel()
	if jsonreader.Read([]byte(`{"x": 1}`), func(r *jsonreader.Reader) { r.Object(jsonreader.Member{Name: "x", To: new(float64)}) }) {
		t.Error("a float64 is understood")
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range append(usual(), unusual()...) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { check(t, text) })
}

func ExampleRead() {
	var pod struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	}
	read := func(r *jsonreader.Reader) {
		r.Object(jsonreader.Member{Name: "name", To: &pod.Name}, jsonreader.Member{Name: "labels", To: &pod.Labels})
	}
	fmt.Println(jsonreader.Read([]byte(`{"name": "web-0", "labels": {"app": "web"}, "spec": {}}`), read), pod)
	fmt.Println(jsonreader.Read([]byte(`{"name": null}`), read))
	// Output:
	// true {web-0 map[app:web]}
	// false
}
