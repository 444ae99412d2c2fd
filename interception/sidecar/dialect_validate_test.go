// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"errors"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

func TestIstioIsAValidDialect(t *testing.T) {
	t.Parallel()
	if err := Istio().Validate(); err != nil {
		t.Error(err)
	}
}

// A key that Parse never looks up would be a setting without effect.
func TestMistakesInDialects(t *testing.T) {
	t.Parallel()
	set := func(*Redirect, string) error { return nil }
	for name, test := range map[string]struct {
		edit func(*Dialect)
		says string
	}{
		"no parameter":    {func(d *Dialect) { d.Fields[0].Parameter = "" }, "no parameter"},
		"no such one":     {func(d *Dialect) { d.Fields[0].Parameter = "Inbound.Exlude" }, `"Inbound.Exlude" is not a parameter`},
		"no kind":         {func(d *Dialect) { d.Fields[0].Kind = "" }, `"" is not a kind of key`},
		"kind of default": {func(d *Dialect) { d.Fields[0].Kind = interception.SourceDefault }, "nothing in a pod"},
		"no key":          {func(d *Dialect) { d.Fields[0].Keys = nil }, "field 0 (DNS): it has no key"},
		"a key no name":   {func(d *Dialect) { d.Fields[0].Keys = []string{"a", ""} }, "a key has no name"},
		"no Set":          {func(d *Dialect) { d.Fields[0].Set = nil }, "it has no Set"},
		"other field":     {func(d *Dialect) { d.Fields[0].Kind = interception.SourceField }, `"mesh.example/dns" is not a field that is looked up`},
		"env of nobody":   {func(d *Dialect) { d.Fields[0].Kind = interception.SourceEnv; d.Membership.ProxyContainer = "" }, "of no container"},
		"ignored nowhere": {func(d *Dialect) { d.Ignored = []IgnoredKey{{Key: "a"}} }, "ignored key 0"},
		"ignored field":   {func(d *Dialect) { d.Ignored = []IgnoredKey{{interception.SourceField, "runAsUser", ""}} }, "never ignored"},
		"empty prefix":    {func(d *Dialect) { d.Prefixes = []string{""} }, "prefixes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Dialect{Membership: Membership{ProxyContainer: "proxy"}, Fields: []Field{
				{Parameter: ParameterDNS, Kind: interception.SourceAnnotation, Keys: []string{"mesh.example/dns"}, Set: set},
			}}
			if err := d.Validate(); err != nil {
				t.Fatal(err)
			}
			test.edit(&d)
			if _, _, err := d.Parse(interception.Pod{}); !errors.Is(err, ErrDialect) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
}

// A default that Set refuses is a mistake of the mesh: no pod has written it.
func TestDefaultsAreValid(t *testing.T) {
	t.Parallel()
	d := Dialect{Fields: []Field{{
		Parameter: ParameterMode, Kind: interception.SourceAnnotation, Keys: []string{"mesh.example/mode"}, Default: "bogus",
		Set: func(_ *Redirect, value string) error {
			if value != "REDIRECT" {
				return errors.New("no such mode")
			}
			return nil
		},
	}}}
	_, _, parseErr := d.Parse(interception.Pod{})
	for name, err := range map[string]error{"Validate": d.Validate(), "Parse": parseErr} {
		var pods *interception.ParseError
		if !errors.Is(err, ErrDialect) || errors.As(err, &pods) || !strings.Contains(err.Error(), `default "bogus" of mesh.example/mode`) {
			t.Errorf("%s = %v, want ErrDialect about the default", name, err)
		}
	}
	pod := interception.Pod{Annotations: map[string]string{"mesh.example/mode": "REDIRECT"}}
	if _, _, err := d.Parse(pod); err != nil {
		t.Errorf("Parse of a pod that names a mode = %v", err)
	}
}

// Programs edit what Parse returned, while another goroutine parses the next pod.
func TestParseSharesNothingWithTheDialect(t *testing.T) {
	t.Parallel()
	want := interception.Source{Kind: interception.SourceDialect, Key: "base"}
	d := Dialect{Base: Redirect{Sources: map[Parameter][]interception.Source{ParameterDNS: {want}}}}
	r, _, err := d.Parse(interception.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	r.Sources[ParameterDNS][0].Key = "edited"
	if got := d.Base.Sources[ParameterDNS][0]; got != want {
		t.Errorf("the dialect's source is now %v", got)
	}
}

// A mesh may use the prefix of its traffic settings for its membership keys.
func TestMembershipKeysHaveAnEffect(t *testing.T) {
	t.Parallel()
	d := Dialect{
		Name: "example", Prefixes: []string{"mesh.example/"},
		Membership: Membership{OptOut: "mesh.example/inject", InjectedAnnotation: "mesh.example/status"},
	}
	_, warnings, err := d.Parse(interception.Pod{Annotations: map[string]string{
		"mesh.example/inject": "true", "mesh.example/status": "{}", "mesh.example/statsu": "",
	}})
	if err != nil || len(warnings) != 1 || warnings[0].Source.Key != "mesh.example/statsu" {
		t.Errorf("%v, %v; want one warning, about the misspelt key", warnings, err)
	}
}
