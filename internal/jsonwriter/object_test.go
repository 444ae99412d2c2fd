// SPDX-License-Identifier: Apache-2.0

package jsonwriter_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/meshcni/meshcni/internal/jsonwriter"
)

type everything struct {
	Text   string            `json:"text"`
	None   string            `json:"none,omitempty"`
	Some   string            `json:"some,omitempty"`
	Number uint64            `json:"number"`
	Float  float64           `json:"float"`
	Bool   bool              `json:"bool"`
	Time   time.Time         `json:"time"`
	Raw    json.RawMessage   `json:"raw"`
	Object map[string]string `json:"object"`
	List   []string          `json:"list"`
	Other  []string          `json:"other,omitempty"`
	Empty  []string          `json:"empty,omitempty"`
}

// write writes what json.Marshal would.
func (e everything) write() []byte {
	return jsonwriter.Of(func(o *jsonwriter.Object) {
		o.String("text", e.Text)
		o.NonEmpty("none", e.None)
		o.NonEmpty("some", e.Some)
		o.Uint("number", e.Number)
		o.Float("float", e.Float)
		o.Bool("bool", e.Bool)
		o.Time("time", e.Time)
		o.Raw("raw", e.Raw)
		o.Object("object", func(o *jsonwriter.Object) {
			for key, value := range e.Object {
				o.String(key, value)
			}
		})
		jsonwriter.List(o, "list", e.List, jsonwriter.Text)
		jsonwriter.NonEmptyList(o, "other", e.Other, jsonwriter.Text)
		jsonwriter.NonEmptyList(o, "empty", e.Empty, jsonwriter.Text)
	})
}

func TestWritesWhatMarshalDoes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "plain", "\"quoted\\\"", "<&>", "\x00\n\t\x7f", "ключ\u2028", "\xff"} {
		e := everything{
			Text: text, Some: "x" + text, Number: math.MaxUint64, Float: 0.1 + 0.2, Bool: true,
			Time: time.Date(2026, 11, 21, 1, 2, 3, 4005000, time.UTC), Raw: json.RawMessage(`[1]`),
			Object: map[string]string{text: text}, List: []string{}, Other: []string{text, text},
		}
		want, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.write(); string(got) != string(want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestFloatWithoutForm(t *testing.T) {
	t.Parallel()
	var o jsonwriter.Object
	o.Float("f", math.NaN())
	if got := string(o.Bytes()); got != `{"f":0}` {
		t.Errorf("got %s", got)
	}
}

func ExampleObject() {
	var o jsonwriter.Object
	fmt.Println(string(o.Bytes()))
	o.String("name", "web-0")
	o.Uint("port", 80)
	fmt.Println(string(o.Bytes()))
	// Output:
	// {}
	// {"name":"web-0","port":80}
}
