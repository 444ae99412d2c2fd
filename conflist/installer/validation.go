// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/kubeconfig"
)

func (o Options) validate() error {
	if o.plugin() == "" {
		return fmt.Errorf("%w: Want.Plugin.Type is empty: name the plugin", ErrOptions)
	}
	problems := append(o.wrongNames(), o.wrongPaths()...)
	if err := o.checkWant(); err != nil {
		problems = append(problems, fmt.Errorf("the field Want: %w", err))
	}
	if o.Kubeconfig != nil {
		problems = append(problems, o.Kubeconfig.problems()...)
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return nil
}

// checkWant is the reconciler's check. It skips a body that Entry replaces.
func (o Options) checkWant() error {
	want := o.Want
	if o.Entry != nil {
		want.Plugin.Body = emptyEntry(o.plugin())
	}
	return want.Validate()
}

func (k Kubeconfig) problems() (problems []error) {
	if err := checkKubeconfigName(filepath.Base(k.Path)); err != nil {
		problems = append(problems, fmt.Errorf("the field Kubeconfig.Path is %q: %w", k.Path, err))
	}
	if err := kubeconfig.CheckMode(k.Mode); err != nil {
		problems = append(problems, fmt.Errorf("the field Kubeconfig.Mode: %w", err))
	}
	return problems
}

func (o Options) wrongNames() (problems []error) {
	type named struct{ field, name string }
	all := []named{{"Want.Plugin.Type", o.plugin()}, {"ClaimName", o.ClaimName}}
	for _, build := range o.Builds {
		all = append(all, named{"Builds", build})
	}
	for _, record := range o.Records {
		all = append(all, named{"Records", record})
	}
	for _, n := range all {
		if err := filesystem.CheckName(n.name); err != nil {
			problems = append(problems, fmt.Errorf("the field %s has %q: %w", n.field, n.name, err))
		}
	}
	if slices.Contains([]string{o.plugin(), o.markerName(), o.lockName()}, o.ClaimName) {
		problems = append(problems, fmt.Errorf("the field ClaimName is %q, which is another file's: choose a name of its own", o.ClaimName))
	}
	return problems
}

func (o Options) wrongPaths() (problems []error) {
	type located struct{ field, path string }
	all := []located{
		{"NetDir", o.NetDir},
		{"NodeNetDir", o.NodeNetDir},
		{"BinDir", o.BinDir},
		{"SecondBinDir", o.SecondBinDir},
		{"RunDir", o.RunDir},
		{"CacheDir", o.CacheDir},
		{"SourceDir", o.SourceDir},
	}
	for _, path := range o.EntryDirs {
		all = append(all, located{"EntryDirs", path})
	}
	if k := o.Kubeconfig; k != nil {
		all = append(all, located{"Kubeconfig.Path", k.Path}, located{"Kubeconfig.TokenFile", k.TokenFile}, located{"Kubeconfig.CAFile", k.CAFile})
	}
	for _, l := range all {
		if l.path != "" && (!filepath.IsAbs(l.path) || filepath.Clean(l.path) != l.path) {
			problems = append(problems, fmt.Errorf("the field %s has %q: write an absolute path in its shortest form", l.field, l.path))
		}
	}
	for _, socket := range o.Sockets {
		if !filepath.IsLocal(socket) || filepath.Clean(socket) != socket {
			problems = append(problems, fmt.Errorf("the field Sockets has %q: write a path in RunDir", socket))
		}
	}
	return problems
}

// checkKubeconfigName requires a bare name that identifies the file, and that no container runtime
// takes for a configuration: an uninstall removes a file of this name because the claim lists it.
func checkKubeconfigName(name string) error {
	if filesystem.CheckName(name) != nil || !strings.HasSuffix(name, "kubeconfig") {
		return errors.New("the file's name must end in kubeconfig")
	}
	return nil
}
