// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// Config keeps the plugin in the network that the container runtime uses, in the way that the settings ask for.
type Config struct {
	*Installer
	reconciler *reconciler.Reconciler // for want
	want       reconciler.Want
	listed     string   // the file that had the plugin last
	below      []string // the directories in that of the CNI configurations that concern this part
	mode       string   // the mode that was last reported, with its reason
	refused    string   // why the settings of this moment can't be followed; empty when they are
}

// Name is "config".
func (c *Config) Name() string { return "config" }

// Directories are those whose changes concern this part: a drop-in's is one that the network names, and links may lead into others.
func (c *Config) Directories() []string {
	directories := []string{c.settings.NetDir, c.settings.BinDir}
	if above := c.templates(); above != "" {
		directories = append(directories, above)
	}
	for _, below := range c.below {
		directories = append(directories, filepath.Join(c.settings.NetDir, filepath.FromSlash(below)))
	}
	return directories
}

// templates is the directory of the file that the plugin's entry is made from; empty without one.
func (c *Config) templates() string {
	above := filepath.Dir(c.settings.TemplateFile)
	if info, err := os.Stat(above); c.settings.TemplateFile == "" || err != nil || !info.IsDir() {
		return "" // a mount that is missing when the container starts doesn't appear later
	}
	return above
}

// Concerns reports whether a change of the file at path may need this part. A template may be in a mounted ConfigMap, where any name is the
// one that changes.
func (c *Config) Concerns(path string) bool {
	if c.settings.TemplateFile != "" && filepath.Dir(path) == filepath.Dir(c.settings.TemplateFile) {
		return true
	}
	if relative, err := filepath.Rel(c.settings.NetDir, path); err != nil || !filepath.IsLocal(relative) {
		return path == markerPath(c.settings) || path == c.claims.path()
	}
	return !filesystem.IsTemporary(filepath.Base(path))
}

// Ensure puts the plugin into the network's configuration, takes it from where it was before, and then removes the marker of an earlier
// uninstall. Without a network, without what the plugin needs, or when all is done but the runtime would take another file first, the
// error wraps [ErrWaiting].
func (c *Config) Ensure(ctx context.Context) (upkeep.Outcome, error) {
	c.refresh()
	if err := c.needed(); err != nil {
		return upkeep.Right, err
	}
	c.removeStale(c.settings.NetDir, staleAfter)
	if err := c.prepare(ctx); err != nil {
		return upkeep.Right, err
	}
	plan, err := c.reconciler.Ensure(filesystem.WithObserver(ctx, c.observer))
	c.report(ctx, plan)
	c.below = reconciler.Plan{File: c.listed, Through: plan.Through}.Directories()
	if len(plan.Steps) > 0 && (err == nil || errors.Is(err, plan.Err)) {
		err = nil // it is looked at again, and says then what is left
	}
	if err != nil {
		return upkeep.Right, c.explain(plan, err)
	}
	if plan.Done < len(plan.Steps) {
		return upkeep.Overtaken, nil
	}
	if plan.Restores() && c.restored != nil {
		c.restored(*plan.Change)
	}
	unmarked := true
	if plan.File != "" {
		unmarked, err = c.unmark()
	}
	return outcome(plan, unmarked), err
}

// outcome is what a pass came to that didn't fail.
func outcome(plan reconciler.Plan, wrote bool) upkeep.Outcome {
	switch {
	case plan.Restores():
		return upkeep.Restored
	case wrote || len(plan.Steps) > 0:
		return upkeep.Wrote
	}
	return upkeep.Right
}

// prepare makes the reconciler for the settings of this moment.
func (c *Config) prepare(ctx context.Context) error {
	chosen := c.settings
	chosen.PluginDataplane = c.dataplane(ctx).Setting
	want, err := wantOf(chosen)
	if err != nil && c.reconciler != nil {
		c.refuse(err)
		return nil
	}
	if err != nil {
		return err
	}
	c.refused = ""
	if c.reconciler != nil && reflect.DeepEqual(c.want, want) {
		return nil
	}
	c.want = want
	c.reconciler, err = c.newReconciler(want)
	return err
}

// refuse keeps to the entry of before.
func (c *Config) refuse(err error) {
	if c.refused != err.Error() {
		c.refused = err.Error()
		c.log.Error("a new entry of the plugin is refused; the old one stays", "error", err)
	}
}

// needed makes sure that this daemon keeps the node, and that no configuration names a plugin that pods could not be made with.
func (c *Config) needed() error {
	if err := c.claims.keep(); err != nil {
		return err
	}
	others := !c.settings.UpdateBinaries || slices.Contains(c.settings.SkipBinaries, pluginType)
	kubeconfig := kubeconfigPath(c.settings)
	err := c.present(c.binDir(), pluginType, 0o111, others)
	if err == nil {
		err = c.present(c.in(filepath.Dir(kubeconfig)), filepath.Base(kubeconfig), 0o400, false)
	}
	if err != nil {
		return fmt.Errorf("%w for what the plugin needs, before pods are made with it: %w", ErrWaiting, err)
	}
	return nil
}

// present makes sure that a file is there, and that it is one with a bit of mode. What has its name and is a directory, or a link that leads
// nowhere, would keep every pod of the node from starting. A link that somebody else made may lead somewhere that only the node has.
func (c *Config) present(in filesystem.Directory, name string, mode fs.FileMode, links bool) error {
	info, err := in.Stat(name)
	switch {
	case err != nil:
		return err
	case links && info.Mode()&fs.ModeSymlink != 0:
		return nil
	case !info.Mode().IsRegular() || info.Mode()&mode == 0:
		return fmt.Errorf("%s is not that, with mode %s: remove it", in.In(name), info.Mode())
	}
	return nil
}

// report logs what a pass did. What it tried and could not do is for the error to say.
func (c *Config) report(ctx context.Context, plan reconciler.Plan) {
	if chosen := fmt.Sprintf("%s: %s", plan.Mode, plan.Reason); plan.File != "" && chosen != c.mode {
		c.mode = chosen
		c.log.Info("how the plugin is installed", "mode", plan.Mode, "reason", plan.Reason,
			"status_is_asked", plan.Status.Asked, "because", plan.Status.Why)
		for _, note := range plan.Notes {
			c.log.Warn(note)
		}
	}
	done := plan.Done == len(plan.Steps)
	level := slog.LevelInfo
	if plan.Done > 0 {
		level = c.noisy()
	}
	if plan.Restores() && done {
		c.log.Log(ctx, level, "the plugin was taken away from the CNI configuration, and put back",
			"file", plan.Change.File, "how", plan.Change.Cause, "by", plan.Change.By.Name, "evidence", plan.Change.By.Evidence)
	}
	c.tellSteps(ctx, level, plan.Steps[:plan.Done])
	if done && plan.File != "" && plan.File != c.listed {
		c.log.Info("the plugin is in the CNI configuration", "file", c.netDir().In(filepath.FromSlash(plan.File)), "primary", plan.Primary)
		c.listed = plan.File
	}
}

// tellSteps logs what was done to files.
func (i *Installer) tellSteps(ctx context.Context, level slog.Level, steps []reconciler.Step) {
	tell := func(what, file, why string) {
		i.log.Log(ctx, level, what, "file", i.netDir().In(filepath.FromSlash(file)), "why", why)
	}
	for _, s := range steps {
		switch s.Op {
		case reconciler.OpWrite:
			tell("wrote a CNI configuration", s.File, cmp.Or(s.Why, "the plugin's entry"))
		case reconciler.OpRemove:
			tell("removed a CNI configuration", s.File, s.Why)
		case reconciler.OpMakeDirectory, reconciler.OpRemoveDirectory, reconciler.OpNudge, reconciler.OpRecord, reconciler.OpForget:
		}
	}
}

// explain says what a person can do about an error, in the words of the settings.
func (c *Config) explain(plan reconciler.Plan, err error) error {
	err = explain(err)
	if errors.Is(err, filesystem.ErrOutside) {
		err = fmt.Errorf("%w (cni-net-dir is %s: say there how the node calls the directory)", err, c.settings.NodeNetDir)
	}
	if c.settings.ConfName != "" && strings.Contains(err.Error(), "primary configuration") {
		err = fmt.Errorf("%w (cni-conf-name is %s; with fixed-default-network files that sort before it don't matter)", err, c.settings.ConfName)
	}
	if !plan.Again.IsZero() {
		return &laterError{err, plan.Again}
	}
	return err
}

// laterError is an error that is to be looked at again although nothing changes.
type laterError struct {
	error
	at time.Time
}

func (e *laterError) Unwrap() error    { return e.error }
func (e *laterError) Again() time.Time { return e.at }

// newReconciler has the claim of this node, and its CNI configurations.
func (i *Installer) newReconciler(want reconciler.Want) (*reconciler.Reconciler, error) {
	return reconciler.New(reconciler.Options{
		Directory: i.settings.NetDir, NodeDirectory: i.settings.NodeNetDir, Want: want, Claims: placeClaims{i.claims}, Now: i.now,
	})
}

// placeClaims are the part of the claim that is about CNI configurations.
type placeClaims struct{ *claims }

// Load returns the places; none if the claim is missing or can't be used.
func (p placeClaims) Load() (reconciler.Claim, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	current, err := p.load()
	if err != nil {
		current = p.remembered()
	}
	return current.Configs, nil
}

// Update changes the places.
func (p placeClaims) Update(change func(*reconciler.Claim)) error {
	return p.update(func(c *claim) { change(&c.Configs) })
}

// wantOf is what the settings want of the CNI configurations.
func wantOf(s settings.Settings) (reconciler.Want, error) {
	body, err := entryOf(s)
	if err != nil {
		return reconciler.Want{}, err
	}
	return reconciler.Want{
		Plugin: conflist.Plugin{Type: pluginType, Body: body}, Mode: s.InstallMode(), Primary: s.Primary(), ByName: s.FixedDefaultNetwork,
		File: s.ConfFile(), FileMode: s.ConfMode(), Runtime: s.Runtime,
	}, nil
}
