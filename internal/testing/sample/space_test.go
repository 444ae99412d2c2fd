// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

func ExampleSpace() {
	space := sample.NewSpace()
	input := space.Input(space.Default())
	fmt.Println(input.Redirect.Mode, input.Redirect.Outbound.Include, input.Facts.IPv6)
	// Output: REDIRECT * true
}

// TestDefault compares the default with an Istio pod with default settings.
func TestDefault(t *testing.T) {
	t.Parallel()
	want, _, err := sidecar.Istio().Parse(interception.Pod{Containers: []interception.Container{{Name: "istio-proxy"}}})
	if err != nil {
		t.Fatal(err)
	}
	space := sample.NewSpace()
	got := space.Input(space.Default()).Redirect
	want.Sources, got.Sources = nil, nil
	if text := fmt.Sprintf("%+v", want); text != fmt.Sprintf("%+v", got) {
		t.Errorf("an Istio pod asks for\n%s\nthe default is\n%+v", text, got)
	}
}

// TestFieldsComplete finds every field of a Redirect and of Facts among the parameters, with a
// value that differs from the others. Plans of sidecars do not depend on Facts.LoopbackIPv6.
func TestFieldsComplete(t *testing.T) {
	t.Parallel()
	space := sample.NewSpace()
	known := map[string]bool{}
	for i, parameter := range space.Parameters {
		known[parameter.Field] = true
		texts := map[string]bool{}
		for value := range parameter.Values {
			texts[fmt.Sprintf("%+v", space.Input(space.Default().With(i, value)))] = true
		}
		if len(texts) != len(parameter.Values) || len(texts) < 2 {
			t.Errorf("%s has %d values, of which %d differ", parameter.Field, len(parameter.Values), len(texts))
		}
		for _, kind := range parameter.Kinds {
			for _, name := range kind.Values {
				if !slices.ContainsFunc(parameter.Values, func(v sample.Value) bool { return v.Name == name }) {
					t.Errorf("%s %s: it has no value %q", parameter.Field, kind.Phrase, name)
				}
			}
		}
	}
	fields := append(leaves(reflect.TypeFor[sidecar.Redirect](), "", known), leaves(reflect.TypeFor[interception.Facts](), "Facts.", known)...)
	for _, field := range fields {
		if field != "Sources" && field != "Facts.LoopbackIPv6" && !known[field] {
			t.Errorf("%s is not a parameter", field)
		}
		delete(known, field)
	}
	if len(known) > 0 {
		t.Errorf("parameters without a field: %v", known)
	}
}

// leaves returns the paths of the fields of a struct of structs, down to the known ones.
func leaves(of reflect.Type, prefix string, known map[string]bool) []string {
	var paths []string
	for i := range of.NumField() {
		field := of.Field(i)
		path := prefix + field.Name
		// Sets are structs too, without settable fields.
		if field.Type.Kind() == reflect.Struct && !known[path] && field.Type.Field(0).IsExported() && !strings.Contains(field.Type.Name(), "[") {
			paths = append(paths, leaves(field.Type, path+".", known)...)
		} else {
			paths = append(paths, path)
		}
	}
	return paths
}
