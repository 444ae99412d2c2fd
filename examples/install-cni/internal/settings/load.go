// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/viper"
)

// ErrInvalid is in every error of [Load].
var ErrInvalid = errors.New("invalid settings")

// AddFlags gives the command and its subcommands a flag for every setting. Help omits those without
// effect.
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
		if err := command.RegisterFlagCompletionFunc(s.Name, s.complete); err != nil {
			panic(err) // the flag exists
		}
	}
}

// complete proposes values to a shell: the allowed ones, or paths.
func (s Setting) complete(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if s.kind == "path" {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var values []cobra.Completion
	for _, value := range s.shape.Enum {
		if text := fmt.Sprint(value); text != "" {
			values = append(values, text)
		}
	}
	if len(values) == 0 && s.kind == "bool" {
		values = []cobra.Completion{"true", "false"}
	}
	return values, cobra.ShellCompDirectiveNoFileComp
}

// Loaded is the result of loading. [Loaded.Reload] does not change it, and it may be copied.
type Loaded struct {
	// Settings are the values in effect.
	Settings Settings
	// Values has a value for each setting, in the order of [All].
	Values []Value
	// Unknown lists variables and files that look like settings but are not.
	Unknown []string

	command     *cobra.Command
	environment environment
}

// Load reads the settings from the command's flags, the settings directory, and the environment (as
// os.Environ returns it). The error wraps [ErrInvalid] and one line for each bad value; the
// returned Loaded shows which values these are.
func Load(command *cobra.Command, environ []string) (Loaded, error) {
	l, err := read(command, newEnvironment(environ))
	if err != nil {
		return l, err
	}
	l.Settings.TemplateRead = readTemplate(l.Settings.TemplateFile)
	return l, errors.Join(l.errors(func(Value) bool { return true }), l.relations())
}

// LoadForUninstall is [Load] for an uninstall, which must go on where an install could not: a bad
// value is replaced by the default and is in the warnings, unless the setting locates what to
// uninstall.
func LoadForUninstall(command *cobra.Command, environ []string) (loaded Loaded, warnings []error, err error) {
	l, err := read(command, newEnvironment(environ))
	if err != nil {
		warnings = append(warnings, err)
	}
	err = l.errors(func(v Value) bool { return v.Setting.Locates })
	for i, v := range l.Values {
		if v.Err == nil || v.Setting.Locates {
			continue
		}
		warnings = append(warnings, v.Err)
		l.Values[i].Text, l.Values[i].Source, l.Values[i].Err = v.Setting.Default, Source{Kind: kindDefault}, nil
	}
	l.Settings, _ = apply(l.Values)
	if problem := l.relations(); problem != nil {
		warnings = append(warnings, problem)
	}
	return l, warnings, err
}

// read reads every value, good or bad. The error is about the settings directory.
func read(command *cobra.Command, e environment) (Loaded, error) {
	l := Loaded{command: command, environment: e, Unknown: e.strangers()}
	values, err := l.lookup(files{})
	if err != nil {
		return l, err
	}
	var found files
	var directoryErr error
	for _, v := range values {
		// Otherwise it is among the bad values.
		if v.Setting.Name == DirectorySetting && v.Setting.Check(v.Text) == nil {
			found, directoryErr = readDirectory(v.Text)
		}
	}
	if directoryErr != nil {
		directoryErr = fmt.Errorf("%w: %w", ErrInvalid, directoryErr)
	}
	l.Unknown = append(l.Unknown, found.strangers()...)
	if values, err = l.lookup(found); err != nil {
		return l, err
	}
	l.Settings, l.Values = apply(values)
	return l, directoryErr
}

// lookup finds the values of all settings, and does not check them.
func (l Loaded) lookup(found files) ([]Value, error) {
	layers := viper.New()
	fromEnvironment, fromFiles := map[string]any{}, map[string]any{}
	values := make([]Value, 0, len(l.Values))
	for _, s := range All() {
		if err := layers.BindFlagValue(s.Name, textFlag{l.command, s.Name}); err != nil {
			return nil, fmt.Errorf("flag --%s: %w", s.Name, err)
		}
		v := Value{Setting: s, Source: Source{Kind: kindDefault}}
		if text, source, ok := l.environment.value(s); ok {
			fromEnvironment[s.Name], v.Source = text, source
		}
		if text, source, ok := found.value(s); ok {
			fromFiles[s.Name], v.Source = text, source
		}
		if l.command.Flags().Changed(s.Name) {
			v.Source = Source{kindFlag, s.Name}
		}
		values = append(values, v)
	}
	for _, layer := range []map[string]any{fromEnvironment, fromFiles} { // the later one wins
		if err := layers.MergeConfigMap(layer); err != nil {
			return nil, fmt.Errorf("read the settings: %w", err)
		}
	}
	for i := range values {
		values[i].Text = layers.GetString(values[i].Setting.Name)
	}
	return values, nil
}

// apply parses values, and records the error of each.
func apply(values []Value) (Settings, []Value) {
	var s Settings
	judged := make([]Value, len(values))
	for i, v := range values {
		if err := v.Setting.apply(&s, v.Text); err != nil {
			v.Err = invalid(v.Text, v.Source, err)
		}
		judged[i] = v
	}
	if !s.Ambient.Enabled { // then they have no effect in Istio's daemon either
		s.Ignored = slices.DeleteFunc(s.Ignored, func(name string) bool { return strings.HasPrefix(name, "ambient-") })
	}
	return s, judged
}

func invalid(text string, source Source, err error) error {
	return fmt.Errorf("%w: %s=%q: %w", ErrInvalid, source, text, err)
}

// errors joins the errors of some values.
func (l Loaded) errors(of func(Value) bool) error {
	var errs []error
	for _, v := range l.Values {
		if of(v) {
			errs = append(errs, v.Err)
		}
	}
	return errors.Join(errs...)
}

// relations returns an error for settings that are valid alone but contradict each other.
func (l Loaded) relations() error {
	if err := l.Settings.relations(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// flagValue keeps a flag's text; Load checks it with all other values.
type flagValue struct{ text, kind string }

func (v *flagValue) String() string     { return v.text }
func (v *flagValue) Set(s string) error { v.text = s; return nil }
func (v *flagValue) Type() string       { return v.kind }

// textFlag shows viper a flag as text, whatever its type: viper would turn a bad boolean into
// false.
type textFlag struct {
	command *cobra.Command
	name    string
}

func (f textFlag) HasChanged() bool    { return f.command.Flags().Changed(f.name) }
func (f textFlag) Name() string        { return f.name }
func (f textFlag) ValueString() string { return f.command.Flags().Lookup(f.name).Value.String() }
func (f textFlag) ValueType() string   { return "string" }

// Reload reads the settings directory and the template's file again. It applies changes of live
// settings and a usable template; a change of any other setting, a bad value, and an unusable
// template is not applied but shown as the value's Offer. After an error, nothing was read, and
// everything stays.
func (l Loaded) Reload() (Loaded, error) {
	found, err := readDirectory(l.Settings.Directory)
	if err != nil {
		return l, err
	}
	next := l
	next.Unknown = append(l.environment.strangers(), found.strangers()...)
	if next.Values, err = l.lookup(found); err != nil {
		return l, err
	}
	for i, old := range l.Values {
		next.Values[i] = replaced(old, next.Values[i])
	}
	next.Settings, next.Values = apply(next.Values)
	now, before := readTemplate(l.Settings.TemplateFile), l.Settings.TemplateRead
	if err := next.takeTemplate(now, before); err != nil {
		next = l.refused(next, err)
		if err := next.takeTemplate(now, before); err != nil {
			return l, err
		}
	}
	return next, nil
}

// takeTemplate takes the template's file as it is now or, where that can't be used, as it was. The
// error is why the settings can't be used with either.
func (l *Loaded) takeTemplate(now, before *TemplateRead) error {
	l.Settings.TemplateRead = now
	refused := l.relations()
	if refused == nil || now == nil {
		return refused
	}
	l.Settings.TemplateRead = before
	if err := l.relations(); err != nil {
		return err
	}
	for i, v := range l.Values {
		if v.Setting.Name == templateFileSetting && v.Offer == nil { // another file may wait for the next start
			l.Values[i].Offer = &Offer{v.Text, v.Source, refused}
		}
	}
	return nil
}

// replaced returns a value after a reading that found another one.
func replaced(old, found Value) Value {
	old.Offer = nil
	if found.Text == old.Text {
		old.Source = found.Source
		return old
	}
	offer := Offer{Text: found.Text, Source: found.Source}
	if err := found.Setting.Check(found.Text); err != nil {
		offer.Err = invalid(found.Text, found.Source, err)
	} else if old.Setting.Live {
		return found
	}
	old.Offer = &offer
	return old
}

// refused keeps the old values if the new ones contradict each other.
func (l Loaded) refused(next Loaded, err error) Loaded {
	for i, v := range next.Values {
		if old := l.Values[i]; v.Text != old.Text {
			old.Offer = &Offer{v.Text, v.Source, invalid(v.Text, v.Source, fmt.Errorf("it contradicts other settings: %w", err))}
			next.Values[i] = old
		}
	}
	next.Settings, next.Values = apply(next.Values)
	return next
}
