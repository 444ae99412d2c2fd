// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/viper"
)

// ErrInvalid is in every error of [Load].
var ErrInvalid = errors.New("invalid settings")

// AddFlags gives the command and its subcommands a flag for every setting. Those without effect are left out of the help.
func AddFlags(command *cobra.Command) {
	flags := command.PersistentFlags()
	flags.SortFlags, command.Flags().SortFlags = false, false
	for _, s := range All() {
		flags.Var(&flagValue{text: s.Default, kind: s.kind}, s.Name, s.Usage)
		flag := flags.Lookup(s.Name)
		flag.Hidden = s.Inert
		if s.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

// Load reads the settings from the command's flags and the environment, a flag before a variable before the default. A variable that is
// set to nothing counts as set. The error wraps [ErrInvalid] and one line for each bad value.
func Load(command *cobra.Command, lookupEnv func(string) (string, bool)) (Settings, error) {
	loaded, problems, err := read(command, lookupEnv)
	for _, p := range problems {
		err = errors.Join(err, p.err)
	}
	return loaded, err
}

// LoadForUninstall is [Load] for an uninstall, which must go on where an install could not: a bad value of a setting that says nothing
// about where to uninstall gives way to the default, and is in the warnings.
func LoadForUninstall(command *cobra.Command, lookupEnv func(string) (string, bool)) (loaded Settings, warnings []error, err error) {
	loaded, problems, err := read(command, lookupEnv)
	for _, p := range problems {
		if p.setting.Locates {
			err = errors.Join(err, p.err)
			continue
		}
		warnings = append(warnings, p.err)
		err = errors.Join(err, p.setting.apply(&loaded, p.setting.Default))
	}
	return loaded, warnings, err
}

// problem is a bad value.
type problem struct {
	setting Setting
	err     error
}

// read does the work of Load and LoadForUninstall.
func read(command *cobra.Command, lookupEnv func(string) (string, bool)) (loaded Settings, problems []problem, err error) {
	values := viper.New()
	environment := map[string]any{}
	for _, s := range All() {
		if err := values.BindFlagValue(s.Name, textFlag{command, s.Name}); err != nil {
			return Settings{}, nil, fmt.Errorf("flag --%s: %w", s.Name, err)
		}
		if value, ok := lookupEnv(s.Env()); ok {
			environment[s.Name] = value
		}
	}
	if err := values.MergeConfigMap(environment); err != nil {
		return Settings{}, nil, fmt.Errorf("read the environment: %w", err)
	}
	for _, s := range All() {
		value := values.GetString(s.Name)
		if err := s.apply(&loaded, value); err != nil {
			source := "environment " + s.Env()
			if command.Flags().Changed(s.Name) {
				source = "flag --" + s.Name
			}
			problems = append(problems, problem{s, fmt.Errorf("%w: %s=%q: %w", ErrInvalid, source, value, err)})
		}
	}
	return loaded, problems, nil
}

// flagValue keeps a flag's text; it is checked with everything else in Load.
type flagValue struct{ text, kind string }

func (v *flagValue) String() string     { return v.text }
func (v *flagValue) Set(s string) error { v.text = s; return nil }
func (v *flagValue) Type() string       { return v.kind }

// textFlag shows viper a flag as text, whatever its type: it would turn a bad boolean into false.
type textFlag struct {
	command *cobra.Command
	name    string
}

func (f textFlag) HasChanged() bool    { return f.command.Flags().Changed(f.name) }
func (f textFlag) Name() string        { return f.name }
func (f textFlag) ValueString() string { return f.command.Flags().Lookup(f.name).Value.String() }
func (f textFlag) ValueType() string   { return "string" }
