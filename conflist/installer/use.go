// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"fmt"
)

// Use gives the installer other options, from the next look of each part on. Want.Plugin.Type,
// ClaimName, Owner, Version, Now and the On functions keep their values. The
// directories NetDir, NodeNetDir, BinDir, RunDir and CacheDir must be those that were given to
// [New], because they contain what was installed. SourceDir and Kubeconfig must be set if they
// were, and must not if they were not, because [Installer.Parts] depend on that. An error wraps
// [ErrOptions], and changes nothing.
func (i *Installer) Use(o Options) error {
	first := i.latest.Load()
	o.Want.Plugin.Type, o.ClaimName = first.Want.Plugin.Type, first.ClaimName
	o.Owner, o.Version, o.Now = first.Owner, first.Version, first.Now
	o.OnEvent, o.OnRestore, o.OnTake = first.OnEvent, first.OnRestore, first.OnTake
	o = o.filled()
	if err := o.validate(); err != nil {
		return err
	}
	if err := o.follows(*first); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	i.latest.Store(&o)
	return nil
}

// follows refuses options that an installer with the earlier ones cannot change to.
func (o Options) follows(before Options) error {
	var problems []error
	for _, directory := range []struct{ field, is, was string }{
		{"NetDir", o.NetDir, before.NetDir},
		{"NodeNetDir", o.NodeNetDir, before.NodeNetDir},
		{"BinDir", o.BinDir, before.BinDir},
		{"RunDir", o.RunDir, before.RunDir},
		{"CacheDir", o.CacheDir, before.CacheDir},
	} {
		if directory.is != directory.was {
			problems = append(problems, fmt.Errorf("the field %s has %q in place of %q: make another installer for another directory",
				directory.field, directory.is, directory.was))
		}
	}
	for _, part := range []struct {
		field   string
		is, was bool
	}{
		{"SourceDir", o.SourceDir != "", before.SourceDir != ""},
		{"Kubeconfig", o.Kubeconfig != nil, before.Kubeconfig != nil},
	} {
		switch {
		case part.is && !part.was:
			problems = append(problems, fmt.Errorf("the field %s is new: make another installer to add a part", part.field))
		case !part.is && part.was:
			problems = append(problems, fmt.Errorf("the field %s is missing: make another installer to leave a part out", part.field))
		}
	}
	return errors.Join(problems...)
}
