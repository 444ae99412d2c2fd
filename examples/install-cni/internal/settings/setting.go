// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"slices"
	"strings"
)

// A Setting is one row of the table.
type Setting struct {
	// Name is the flag's name, and that of a file in the settings directory.
	Name string
	// Default is the value, as one would write it, of a setting that isn't given.
	Default string
	// Usage says what the setting does, in one line.
	Usage string
	// Group is the heading under which the setting stands in the documentation.
	Group Group
	// Inert says that the setting is accepted for the sake of existing manifests and changes nothing.
	Inert bool
	// Live says that the setting may change while the daemon runs: the settings directory is watched.
	Live bool
	// Locates says that the setting tells where things were installed, so that an uninstall can't do without a good value.
	Locates bool
	// OtherEnv are names of the environment variable that are accepted beside [Setting.Env].
	OtherEnv []string

	parser
}

// A Group is a heading in the documentation of settings.
type Group string

// The groups, in the order of the documentation.
const (
	Places         Group = "Where things are"
	Installation   Group = "How the plugin is installed"
	Server         Group = "How the plugin reaches the API server"
	Plugin         Group = "What the plugin does"
	Daemon         Group = "What the daemon does"
	OutsideTheMesh Group = "What is done about pods outside the mesh"
	Generation     Group = "Istio before 1.23"
	NoEffect       Group = "Without effect"
)

// Env is the name of the environment variable.
func (s Setting) Env() string {
	return strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Envs are all names of the environment variable; the first one that is set counts.
func (s Setting) Envs() []string { return append([]string{s.Env()}, s.OtherEnv...) }

// Kind is the type of value, as help shows it: "bool", "string", "path", ….
func (s Setting) Kind() string { return s.kind }

// Check says what is wrong with a value, if anything is.
func (s Setting) Check(value string) error { return s.apply(&Settings{}, value) }

// All returns every setting, in the order of the documentation.
func All() []Setting {
	return slices.Concat(places(), installation(), server(), plugin(), daemon(), outsideTheMesh(), generation(), inert())
}

// A table is rows of one group.
type table struct {
	group Group
	rows  []Setting
}

func (t *table) add(name, value string, p parser, usage string, marks ...mark) {
	s := Setting{Name: name, Default: value, Usage: usage, Group: t.group, parser: p}
	for _, set := range marks {
		set(&s)
	}
	t.rows = append(t.rows, s)
}

// A mark sets what few rows have.
type mark func(*Setting)

func live(s *Setting) { s.Live = true }

func locates(s *Setting) { s.Locates = true }

func noEffect(s *Setting) { s.Inert, s.Group = true, NoEffect }

// also has the variable be known by other names, too.
func also(names ...string) mark { return func(s *Setting) { s.OtherEnv = names } }

// A shape is the JSON schema of one value. Its zero value is that of anything.
type shape struct {
	Type      string `json:"type,omitempty"`
	Enum      []any  `json:"enum,omitempty"`
	Pattern   string `json:"pattern,omitempty"`
	MaxLength int    `json:"maxLength,omitempty"`
	Minimum   *int   `json:"minimum,omitempty"`
	Maximum   *int   `json:"maximum,omitempty"`
	Items     *shape `json:"items,omitempty"`
}

// Key is the setting's name in the values of a chart.
func (s Setting) Key() string {
	words := strings.FieldsFunc(s.Name, func(r rune) bool { return r == '-' || r == '_' })
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}
