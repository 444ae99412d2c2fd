// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
)

// LoadLeniently is [Load] for a command about a daemon that may run: a bad value in a file or a
// variable has not stopped that daemon either. The value with which it works takes the bad one's
// place, or without its record the default. The Offer of such a value has the bad one, and refused
// has a line for each. The error is about the command line.
func LoadLeniently(command *cobra.Command, environ []string) (loaded Loaded, refused []error, err error) {
	l, directoryErr := read(command, newEnvironment(environ))
	if directoryErr != nil {
		refused = append(refused, directoryErr)
	}
	fromFlag := func(v Value) bool { return v.Source.Kind == kindFlag }
	if err := l.errors(fromFlag); err != nil {
		return l, refused, err
	}
	isBad := func(v Value) error { return v.Err }
	recorded, recordErr := Recorded(l.without(isBad, Report{}).Settings.RunDir)
	l = l.without(isBad, recorded)
	if problem := l.relations(); problem != nil {
		if slices.ContainsFunc(l.Values, fromFlag) && unflagged(environ) == nil {
			return l, refused, problem // the flags brought it about
		}
		refused = append(refused, problem)
		if recordErr == nil {
			l = l.without(func(v Value) error { return contradicts(v, recorded, problem) }, recorded)
		}
	}
	for _, v := range l.Values {
		if v.Offer != nil {
			refused = append(refused, fmt.Errorf("%w; %q is used instead, from %s", v.Offer.Err, v.Text, v.Source))
		}
	}
	return l, refused, nil
}

// unflagged returns the contradiction in the settings without flags.
func unflagged(environ []string) error {
	bare := &cobra.Command{}
	AddFlags(bare)
	if err := bare.ParseFlags(nil); err != nil {
		return err
	}
	l, _ := read(bare, newEnvironment(environ)) // an error about the directory is known already
	return l.relations()
}

// contradicts returns the problem for a value in a file that is not the daemon's.
func contradicts(v Value, recorded Report, problem error) error {
	if old, ok := recorded.value(v.Setting.Name); !ok || v.Source.Kind != kindFile || old.Value == v.Text {
		return nil
	}
	return invalid(v.Text, v.Source, fmt.Errorf("it contradicts other settings: %w", problem))
}

// without returns what was loaded with another value in the place of each for which problem has an
// error.
func (l Loaded) without(problem func(Value) error, recorded Report) Loaded {
	values := make([]Value, len(l.Values))
	for i, v := range l.Values {
		if err := problem(v); err != nil {
			v.Offer, v.Err = &Offer{v.Text, v.Source, err}, nil
			v.Text, v.Source = v.Setting.Default, Source{Kind: kindDefault}
			if old, ok := recorded.value(v.Setting.Name); ok && v.Setting.Check(old.Value) == nil {
				v.Text, v.Source = old.Value, Source{Kind: kindDaemon}
			}
		}
		values[i] = v
	}
	l.Settings, l.Values = apply(values)
	return l
}

// value returns the value of a setting in the report.
func (r Report) value(name string) (ReportedValue, bool) {
	for _, v := range r.Settings {
		if v.Name == name {
			return v, true
		}
	}
	return ReportedValue{}, false
}

// Refused returns the values in the report that are not in effect because they are wrong.
func (r Report) Refused() []ReportedValue {
	var all []ReportedValue
	for _, v := range r.Settings {
		if v.Offer != nil && v.Offer.Error != "" {
			all = append(all, v)
		}
	}
	return all
}
