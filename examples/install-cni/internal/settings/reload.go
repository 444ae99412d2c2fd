// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
)

// Reload reads the settings directory again. What may change while the daemon runs does; a change of anything else, and a bad value, is kept
// out and shown as the value's Offer. An error means that nothing was read, and everything stays.
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
	if err := next.relations(); err != nil {
		return l.refused(next, err), nil
	}
	return next, nil
}

// replaced is a value behind a reading that found another one.
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

// refused keeps the old values where the new ones don't go together.
func (l Loaded) refused(next Loaded, err error) Loaded {
	for i, v := range next.Values {
		if old := l.Values[i]; v.Text != old.Text {
			old.Offer = &Offer{v.Text, v.Source, invalid(v.Text, v.Source, fmt.Errorf("it doesn't go with the others: %w", err))}
			next.Values[i] = old
		}
	}
	next.Settings, next.Values = apply(next.Values)
	return next
}
