// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// config keeps the plugin in the container runtime's network, in the mode of the settings.
type config struct {
	*Installer
	reconciler *reconciler.Reconciler // for want
	want       reconciler.Want
	listed     string   // the file that had the plugin last
	below      []string // the subdirectories of the CNI configuration directory that this part watches
	mode       string   // the mode and its reason, as last reported
	former     string   // why a former kubeconfig cannot be removed, as last reported
	refused    string   // why the current settings cannot be used; empty when they are
}

func (i *Installer) config() *config { return &config{Installer: i.part()} }

func (c *config) Name() string { return "config" }

// Directories returns the directories whose changes concern this part. A network names its drop-in
// directory, and links may lead into others.
func (c *config) Directories() []string {
	directories := []string{c.options.NetDir, c.options.BinDir}
	for _, path := range c.options.EntryDirs {
		if info, err := os.Stat(path); err == nil && info.IsDir() { // a mount cannot appear later
			directories = append(directories, path)
		}
	}
	for _, below := range c.below {
		directories = append(directories, filepath.Join(c.options.NetDir, filepath.FromSlash(below)))
	}
	return directories
}

// Concerns reports whether a change of the file at path may concern this part. The files that Entry
// reads may be in a mounted ConfigMap, where any name may be the one that changes.
func (c *config) Concerns(path string) bool {
	if slices.Contains(c.options.EntryDirs, filepath.Dir(path)) {
		return true
	}
	if relative, err := filepath.Rel(c.options.NetDir, path); err != nil || !filepath.IsLocal(relative) {
		return path == c.binDir().In(c.options.markerName()) || path == c.claims.path()
	}
	return !filesystem.IsTemporary(filepath.Base(path))
}

// Ensure puts the plugin into the network's configuration, removes it from its earlier place, and
// then removes the marker of an earlier uninstall. The error wraps [ErrWaiting] if no network
// exists, if what the plugin needs is missing, or if the runtime would take another file first
// after all is done.
func (c *config) Ensure(ctx context.Context) (Result, error) {
	c.refresh(ctx)
	if err := c.needed(); err != nil {
		return Right, err
	}
	c.removeStale(c.options.NetDir, staleAfter)
	if err := c.prepare(ctx); err != nil {
		return Right, err
	}
	plan, err := c.reconciler.Ensure(filesystem.WithObserver(ctx, c.observer))
	c.report(plan)
	c.below = reconciler.Plan{File: c.listed, Through: plan.Through}.Directories()
	if plan.Steps() > 0 && (err == nil || errors.Is(err, plan.Err)) {
		err = nil // the next look reports what remains
	}
	if err != nil {
		return Right, c.explain(plan, err)
	}
	if plan.Done < plan.Steps() {
		return Overtaken, nil
	}
	if plan.Restores() {
		c.options.OnRestore(*plan.Change)
	}
	unmarked := true
	if plan.File != "" {
		unmarked, err = c.unmark()
		c.removeFormer()
	}
	return outcome(plan, unmarked), err
}

// outcome returns the result of a pass that did not fail.
func outcome(plan reconciler.Plan, wrote bool) Result {
	switch {
	case plan.Restores():
		return Restored
	case wrote || plan.Steps() > 0:
		return Wrote
	}
	return Right
}

// prepare creates the reconciler for the current settings, or keeps the earlier one if invalid.
func (c *config) prepare(ctx context.Context) error {
	want, next := c.options.Want, c.reconciler
	body, err := c.options.entry(ctx)
	want.Plugin.Body = body
	if err == nil && (next == nil || !reflect.DeepEqual(c.want, want)) {
		next, err = c.newReconciler(want, false)
	}
	switch {
	case err != nil && c.reconciler != nil:
		c.refuse(err)
		return nil
	case err != nil:
		return err
	}
	c.want, c.reconciler, c.refused = want, next, ""
	return nil
}

// refuse keeps the earlier entry.
func (c *config) refuse(err error) {
	if c.refused != err.Error() {
		c.refused = err.Error()
		c.options.emit(Failure, "a new entry of the plugin is refused; the old one stays", "error", err)
	}
}

// needed checks that this daemon keeps the node, and that the plugin has everything to set up pods
// before a configuration names it.
func (c *config) needed() error {
	if err := c.claims.keep(c.observer); err != nil {
		return err
	}
	others := c.options.KeepBinaries || !c.options.bringsPlugin()
	kubeconfig := c.options.kubeconfigPath()
	err := c.present(c.binDir(), c.options.plugin(), 0o111, others)
	if err == nil && kubeconfig != "" {
		err = c.present(c.in(filepath.Dir(kubeconfig)), filepath.Base(kubeconfig), 0o400, false)
	}
	if err != nil {
		return fmt.Errorf("%w for what the plugin needs before the runtime calls it: %w", ErrWaiting, err)
	}
	return nil
}

// present checks that a regular file with one of the bits of mode exists. A directory of its name,
// or a link that leads nowhere, would keep every pod of the node from starting. Another program's
// link is accepted: it may lead to a path that exists only on the node.
func (c *config) present(in filesystem.Directory, name string, mode fs.FileMode, links bool) error {
	info, err := in.Stat(name)
	switch {
	case err != nil:
		return err
	case links && info.Mode()&fs.ModeSymlink != 0:
		return nil
	case !info.Mode().IsRegular() || info.Mode()&mode == 0:
		return fmt.Errorf("%s, with mode %s, can't serve the plugin: remove it", in.In(name), info.Mode())
	}
	return nil
}

// report logs what a pass did. What it failed to do is in the error.
func (c *config) report(plan reconciler.Plan) {
	if chosen := fmt.Sprintf("%s: %s", plan.Mode, plan.Reason); plan.File != "" && chosen != c.mode {
		c.mode = chosen
		c.options.emit(News, "how the plugin is installed", "mode", plan.Mode, "reason", plan.Reason,
			"status_is_asked", plan.Status.Asked, "because", plan.Status.Why)
		for _, note := range plan.Notes {
			c.options.emit(Warning, note)
		}
	}
	done := plan.Done == plan.Steps()
	weight := News
	if plan.Done > 0 {
		weight = c.noisy()
	}
	if plan.Restores() && done {
		c.options.emit(weight, "the plugin was taken away from the CNI configuration, and put back",
			"file", plan.Change.File, "how", plan.Change.Cause, "by", plan.Change.By.Name, "evidence", plan.Change.By.Evidence)
	}
	c.emitEdits(weight, plan)
	if done && plan.File != "" && plan.File != c.listed {
		c.options.emit(News, "the plugin is in the CNI configuration", "file", c.netDir().In(filepath.FromSlash(plan.File)), "primary", plan.Primary)
		c.listed = plan.File
	}
}

func (i *Installer) emitEdits(weight Weight, plan reconciler.Plan) {
	for _, e := range plan.Edits() {
		if !e.Done {
			continue
		}
		message, why := "wrote a CNI configuration", cmp.Or(e.Why, "the plugin's entry")
		if e.Removed {
			message, why = "removed a CNI configuration", e.Why
		}
		i.options.emit(weight, message, "file", i.netDir().In(filepath.FromSlash(e.File)), "why", why)
	}
}

// explain adds advice for the operator to an error.
func (c *config) explain(plan reconciler.Plan, err error) error {
	err = explain(err)
	if errors.Is(err, filesystem.ErrOutside) {
		err = &OptionError{"NodeNetDir", err}
	}
	if c.options.Want.Primary != "" && strings.Contains(err.Error(), "primary configuration") {
		err = &OptionError{"Want.Primary", err}
	}
	if !plan.Again.IsZero() {
		return &laterError{err, plan.Again}
	}
	return err
}

// laterError is an error after which to look again at a certain time even if nothing changes.
type laterError struct {
	error
	at time.Time
}

func (e *laterError) Unwrap() error    { return e.error }
func (e *laterError) Again() time.Time { return e.at }

// newReconciler returns a reconciler with this node's claim and CNI configurations. With beside,
// another mesh may be at work during a removal.
func (i *Installer) newReconciler(want reconciler.Want, beside bool) (*reconciler.Reconciler, error) {
	return reconciler.New(reconciler.Options{
		Directory: i.options.NetDir, NodeDirectory: i.options.NodeNetDir, Want: want, Claims: placeClaims{i}, Now: i.options.Now, Shared: beside,
	})
}

// placeClaims are the claim's part about CNI configurations, with the current observer.
type placeClaims struct{ *Installer }

// Load returns the places, or an empty claim if the file is missing or unusable.
func (p placeClaims) Load() (reconciler.Claim, error) {
	p.claims.mu.Lock()
	defer p.claims.mu.Unlock()
	current, err := p.claims.load()
	if err != nil {
		current = p.claims.remembered()
	}
	return current.Configs, nil
}

func (p placeClaims) Update(change func(*reconciler.Claim)) error {
	return p.claims.update(p.observer, func(c *claim) { change(&c.Configs) })
}
