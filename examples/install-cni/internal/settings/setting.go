// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"slices"
	"strings"
)

// Setting is one row of the table.
type Setting struct {
	// Name is the name of the flag, and of the file in the settings directory.
	Name string
	// Default is the value of a setting that is not set, as a user would write it.
	Default string
	// Usage describes the setting in one line.
	Usage string
	// Group is the setting's heading in the documentation.
	Group Group
	// Inert reports that the setting is accepted for existing manifests, and changes nothing.
	Inert bool
	// Live reports that the setting may change while the daemon runs: the settings directory is
	// watched.
	Live bool
	// Locates reports that the setting is about where things were installed, so that an uninstall
	// needs a good value.
	Locates bool
	// OtherEnv are alternative names of the environment variable, in addition to [Setting.Env].
	OtherEnv []string

	parser
}

// Group is a heading in the documentation of settings.
type Group string

// The groups, in the order of the documentation.
const (
	Places         Group = "Where things are"
	Installation   Group = "How the plugin is installed"
	Server         Group = "How the plugin reaches the API server"
	Plugin         Group = "What the plugin does"
	Daemon         Group = "What the daemon does"
	AmbientMode    Group = "Ambient mode"
	OutsideTheMesh Group = "What is done about pods outside the mesh"
	Generation     Group = "Istio before 1.23"
	NoEffect       Group = "Without effect"
)

// Env returns the name of the environment variable.
func (s Setting) Env() string {
	return strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Envs returns all names of the environment variable; the first one that is set counts.
func (s Setting) Envs() []string { return append([]string{s.Env()}, s.OtherEnv...) }

// Kind returns the type of value, as help shows it: "bool", "string", "path", ….
func (s Setting) Kind() string { return s.kind }

// Check returns the error in a value, or nil.
func (s Setting) Check(value string) error { return s.apply(&Settings{}, value) }

// All returns every setting, in the order of the documentation.
func All() []Setting {
	return slices.Concat(places(), installation(), server(), plugin(), daemon(), inAmbientMode(), outsideTheMesh(), generation(), inert())
}

// table has the rows of one group.
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

// mark sets a property that few rows have.
type mark func(*Setting)

func live(s *Setting) { s.Live = true }

func locates(s *Setting) { s.Locates = true }

func noEffect(s *Setting) { s.Inert, s.Group = true, NoEffect }

// also adds alternative names of the variable.
func also(names ...string) mark { return func(s *Setting) { s.OtherEnv = names } }

// shape is the JSON schema of one value. The zero value allows any value.
type shape struct {
	Type      string `json:"type,omitempty"`
	Enum      []any  `json:"enum,omitempty"`
	Pattern   string `json:"pattern,omitempty"`
	MaxLength int    `json:"maxLength,omitempty"`
	Minimum   *int   `json:"minimum,omitempty"`
	Maximum   *int   `json:"maximum,omitempty"`
	Items     *shape `json:"items,omitempty"`
}

// Key returns the setting's name in the values of a chart.
func (s Setting) Key() string {
	words := strings.FieldsFunc(s.Name, func(r rune) bool { return r == '-' || r == '_' })
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}
