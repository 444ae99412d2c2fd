// SPDX-License-Identifier: Apache-2.0

package conflist_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/conflist"
)

// seed adds the corpus, and small documents with odd blanks and near misses.
func seed(f *testing.F) [][]byte {
	f.Helper()
	docs := [][]byte{
		[]byte(`{"plugins":[]}`), []byte("{\"plugins\":[ \r\n\t ]}"), []byte("{\n\"plugins\" :\n[ {\"type\":\"a\"}\n,\t{\"type\":\"m\"} ,{\"type\":\"m\"}]\n}\n\n"),
		[]byte(`{"name":"n","type":"a"}`), []byte(`{"type":"a","plugins":[]}`), []byte(`{"plugins":[{"type":"a","type":"m"}]}`), []byte(`{"x":"\ud800\u00`),
		[]byte(`{"x":[-0.1e+9,null,true,false,{"y":[[]]}],"plugins":[{"type":"\u006d"}]}`),
	}
	for _, file := range corpus(f) {
		docs = append(docs, readFile(f, file), readFile(f, filepath.Join("testdata/after", filepath.Base(file))))
	}
	return docs
}

// FuzzInsertRemove checks the package's laws on every document that it accepts.
func FuzzInsertRemove(f *testing.F) {
	for _, doc := range seed(f) {
		f.Add(doc, []byte(`{"type":"m"}`))
		f.Add(doc, []byte(mesh().Body))
	}
	f.Fuzz(func(t *testing.T, doc, body []byte) {
		given := bytes.Clone(doc)
		p := conflist.Plugin{Type: typeOf(body), Body: body}
		edit, err := conflist.Insert(doc, p)
		if !bytes.Equal(doc, given) {
			t.Fatal("Insert wrote to the document")
		}
		if err != nil {
			return
		}
		if !json.Valid(edit.Out) {
			t.Fatalf("Insert made invalid JSON: %q", edit.Out)
		}
		if edit.Changed == bytes.Equal(doc, edit.Out) {
			t.Fatalf("Changed is %v: %q", edit.Changed, edit.Out)
		}
		wantUnchanged(t, edit.Out, p)
		if found, ok, err := conflist.Find(edit.Out, p.Type); err != nil || !ok || !sameJSON(t, found.Body, body) {
			t.Fatalf("the entry is not found again: %v, %v, %q", ok, err, found.Body)
		}
		if seen := entriesSeenByRuntime(t, edit.Out); len(seen) > 1 && typeOf(seen[0]) == p.Type {
			t.Fatalf("the entry stands before all others: %q", edit.Out)
		}
		removed, err := conflist.Remove(edit.Out, p.Type)
		if err != nil || !json.Valid(removed.Out) {
			t.Fatalf("Remove after Insert: %v: %q", err, removed.Out)
		}
		if _, ok, err := conflist.Find(removed.Out, p.Type); err != nil || ok {
			t.Fatalf("the entry is there after Remove: %v, %q", err, removed.Out)
		}
		if _, had, err := conflist.Find(doc, p.Type); err != nil || had {
			return
		}
		if edit.Lifted {
			wantWithin(t, edit.Out, doc)
			return
		}
		wantOnlyAddition(t, doc, edit.Out)
		if !bytes.Equal(removed.Out, doc) {
			t.Fatalf("Remove(Insert(x)) is not x:\n%q\n%q", doc, removed.Out)
		}
	})
}

// typeOf returns the type that encoding/json reads in a body, which may differ from ours.
func typeOf(body []byte) string {
	var entry struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(body, &entry) // a body that is not an object has no type
	return entry.Type
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	x, errX := compact(a)
	y, errY := compact(b)
	if errX != nil || errY != nil {
		t.Fatal(errX, errY)
	}
	if bytes.Equal(x, y) {
		return true
	}
	// An equal entry that existed before may be written differently.
	return string(normal(t, a)) == string(normal(t, b))
}

func compact(doc []byte) ([]byte, error) {
	var out bytes.Buffer
	err := json.Compact(&out, doc)
	return out.Bytes(), err
}

func normal(t *testing.T, doc []byte) []byte {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// FuzzFind compares this package with encoding/json, and Find with what a runtime sees.
func FuzzFind(f *testing.F) {
	for _, doc := range seed(f) {
		f.Add(doc, "m")
		f.Add(doc, "istio-cni")
		f.Add(doc, "portmap")
	}
	f.Fuzz(func(t *testing.T, doc []byte, typ string) {
		p, ok, err := conflist.Find(doc, typ)
		if err != nil {
			wantPosition(t, doc, err)
			return
		}
		if !json.Valid(doc) {
			t.Fatalf("the document is accepted and invalid: %q", doc)
		}
		want := entriesSeenByRuntime(t, doc)
		var first json.RawMessage
		for _, e := range want {
			if typeOf(e) == typ {
				first = e
				break
			}
		}
		if typ != "" && ok != (first != nil) || !bytes.Equal(p.Body, first) && ok {
			t.Fatalf("found %q (%v), encoding/json finds %q", p.Body, ok, first)
		}
	})
}

func wantPosition(t *testing.T, doc []byte, err error) {
	t.Helper()
	var syntax *conflist.SyntaxError
	if !errors.As(err, &syntax) {
		t.Fatalf("got %v, want a SyntaxError", err)
	}
	lines := bytes.Split(doc, []byte("\n"))
	if syntax.Line < 1 || syntax.Line > len(lines) || syntax.Column < 1 || syntax.Column > len(lines[syntax.Line-1])+1 {
		t.Fatalf("there is no line %d with column %d in %q", syntax.Line, syntax.Column, doc)
	}
}

func entriesSeenByRuntime(t *testing.T, doc []byte) []json.RawMessage {
	t.Helper()
	var top map[string]json.RawMessage
	if err := json.Unmarshal(doc, &top); err != nil {
		t.Fatal(err)
	}
	plugins, ok := top["plugins"]
	if !ok {
		return []json.RawMessage{bytes.Trim(doc, " \t\r\n")}
	}
	var entries []json.RawMessage
	if err := json.Unmarshal(plugins, &entries); err != nil {
		t.Fatal(err)
	}
	return entries
}

// FuzzObject checks that this package accepts what encoding/json accepts, anywhere in a document.
func FuzzObject(f *testing.F) {
	for _, value := range []string{`1`, `-0.5e+10`, `"\u00e9\n"`, `[]`, `{"a":[1,{}]}`, `null`, "\"\xff\"", ` 01`, `"\x"`, "\"\t\"", `{"a":1,}`} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		doc := append(append([]byte(`{"x":`), value...), `,"plugins":[]}`...)
		var top struct {
			X, Plugins json.RawMessage
		}
		// A value that closes the object early, or adds keys, may make the document ambiguous.
		valid := json.Valid(value) && json.Unmarshal(doc, &top) == nil
		_, _, err := conflist.Find(doc, "m")
		if valid && err != nil && bytes.Count(value, []byte("[")) < conflist.MaxDepth/2 && bytes.Count(value, []byte("{")) < conflist.MaxDepth/2 {
			t.Fatalf("encoding/json accepts %q, and we do not: %v", value, err)
		}
		if err == nil && !json.Valid(doc) {
			t.Fatalf("we accept %q, and encoding/json does not", value)
		}
	})
}
