// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"errors"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Validate reports every mistake in the dialect that would have a key of a pod looked up nowhere, or a value of it go nowhere, joined, each
// wrapping [ErrDialect]; nil when there is none. It asks no function of the dialect.
func (d Dialect) Validate() error {
	var errs []error
	refuse := func(at string, reason error) {
		if reason != nil {
			errs = append(errs, fmt.Errorf("%w: %s: %w", ErrDialect, at, reason))
		}
	}
	for i, f := range d.Fields {
		refuse(fmt.Sprintf("field %d (%s)", i, f.Parameter), d.fieldMistake(f))
	}
	for i, key := range d.Ignored {
		at := fmt.Sprintf("ignored key %d", i)
		if key.Kind == interception.SourceField {
			refuse(at, errors.New("a field of the pod is never ignored"))
			continue
		}
		refuse(at, d.keyMistake(key.Kind, key.Key))
	}
	if slices.Contains(d.Prefixes, "") {
		refuse("prefixes", errors.New("an empty one would have every annotation reported: remove it"))
	}
	return errors.Join(errs...)
}

func (d Dialect) fieldMistake(f Field) error {
	switch {
	case f.Parameter == "":
		return errors.New("it names no parameter: its value would have no provenance")
	case !slices.Contains(parameters(), f.Parameter):
		return fmt.Errorf("%q is no parameter of a Redirect, so no rule would name its key as the reason: write one of the constants", f.Parameter)
	case f.Set == nil:
		return errors.New("it has no Set to read a value with")
	case len(f.Keys) == 0:
		return errors.New("it has no key")
	}
	var errs []error
	for _, key := range f.Keys {
		errs = append(errs, d.keyMistake(f.Kind, key))
	}
	return errors.Join(errs...)
}

func (d Dialect) keyMistake(kind interception.SourceKind, key string) error {
	switch kind {
	case interception.SourceAnnotation, interception.SourceLabel:
	case interception.SourceEnv:
		if d.Membership.ProxyContainer == "" {
			return fmt.Errorf("the variable %q is of no container: Membership names no ProxyContainer", key)
		}
	case interception.SourceField:
		if key != "runAsUser" && key != "runAsGroup" {
			return fmt.Errorf("%q is no field that is looked up: write runAsUser or runAsGroup", key)
		}
	case interception.SourceDefault, interception.SourceDialect:
		return fmt.Errorf("%q is nothing in a pod to look up %q in", kind, key)
	default:
		return fmt.Errorf("%q is no kind of key: write SourceAnnotation, SourceLabel, SourceEnv or SourceField", kind)
	}
	if key == "" {
		return errors.New("a key has no name")
	}
	return nil
}
