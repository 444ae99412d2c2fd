// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// ErrInUse is in the error of [Installer.Uninstall] if a daemon is at work on this node, which
// would restore everything.
var ErrInUse = errors.New("a daemon is running on this node and would put everything back: " +
	"stop it for good first, for example by deleting its DaemonSet")

// Uninstall removes what the parts have installed, in this process or an earlier one: first the
// entry from the CNI configurations; then, after it has written the marker, the kubeconfig and the
// binaries. Uninstalling again continues where the last uninstall ended; where nothing is installed
// it does nothing.
//
// If the entry cannot be removed from a configuration, and a runtime therefore still creates pods
// with the plugin, everything else stays: with the marker those pods would bypass the mesh, and
// without the kubeconfig they would not start. The binaries stay as long as the runtime will call
// them for existing pods, and as long as a broken configuration, which may be repaired, names the
// plugin.
//
// A step that fails does not prevent the others. The error contains all of their errors.
func (i *Installer) Uninstall(ctx context.Context, o UninstallOptions) error {
	i = i.at(ctx)
	h, err := i.holdAlone(ctx)
	if err != nil {
		return err
	}
	defer i.releaseAlone(h)
	i.claims.forget()
	i.claims.attend(h) // a claim that stays tells the next uninstall what was locked
	current, err := i.claims.load()
	if err != nil && !isMissing(err) {
		i.options.emit(Warning, "the claim can't be used; looking for what is installed instead", "error", err)
	}
	for _, directory := range i.directories(current) {
		i.catchUp(i.in(directory))
		i.cleaned[directory] = false
		age := anyAge
		if !h.sole && (directory == i.options.NetDir || directory == i.options.BinDir) {
			age = staleAfter // another mesh may be writing at the same time
		}
		i.removeStale(directory, age)
	}
	if isMissing(err) && !i.traces() && !o.Purge {
		i.options.emit(News, "nothing is installed")
		return nil
	}
	return (&removal{Installer: i, claim: current, how: o, beside: !h.sole}).run(ctx)
}

type removal struct {
	*Installer
	claim    claim
	how      UninstallOptions
	problems *multierror.Error
	beside   bool     // another mesh may be at work
	broken   []string // the configurations that name the plugin and that no runtime can load
}

func (r *removal) run(ctx context.Context) error {
	if !r.configurations() {
		for _, name := range []string{"marker", "kubeconfig", "binaries", "claim"} {
			r.report(Step{name, NotTried, "the runtime still calls the plugin, and pods are still captured"})
		}
		return r.problems.ErrorOrNil()
	}
	if !r.how.Purge {
		r.step("marker", "", r.mark())
	}
	r.step("kubeconfig", "", errors.Join(r.removeKubeconfig(r.claim), r.removeSockets(ctx), r.forgetRequest()))
	kept := r.binaries()
	switch {
	case r.problems.ErrorOrNil() != nil && !r.how.Purge:
		r.report(Step{"claim", Kept, "for the next uninstall, which continues here"})
	case len(kept) > 0:
		r.step("claim", "lists what is left", r.leave(kept))
	default:
		r.step("claim", "", r.claims.remove(r.observer))
	}
	if r.how.Purge {
		_, err := r.unmark()
		r.step("marker", "removed", err)
	}
	return r.problems.ErrorOrNil()
}

func (r *removal) step(name, detail string, err error) {
	outcome := Done
	if err != nil {
		outcome, detail = Failed, err.Error()
		r.problems = multierror.Append(r.problems, err)
	}
	r.report(Step{name, outcome, detail})
}

func (r *removal) report(s Step) {
	if r.how.Progress != nil {
		r.how.Progress(s)
	}
}

// configurations removes the entry from all, and reports whether no runtime uses it any more.
func (r *removal) configurations() (freed bool) {
	err := r.removeEntries(r.beside)
	loaded, broken, lookErr := r.named()
	if err == nil && len(loaded) > 0 {
		err = fmt.Errorf("the plugin is in %s again: find out which program writes there, and uninstall again", strings.Join(loaded, ", "))
	}
	r.broken = broken
	r.step("configuration", "", errors.Join(err, lookErr))
	return lookErr == nil && len(loaded) == 0
}

// binaries removes what is not needed, and returns what stays.
func (r *removal) binaries() (kept []string) {
	names, reason, err := r.needed(r.claim)
	switch {
	case r.how.Purge:
		r.step("binaries", "", r.removeBinaries(names))
		return nil
	case err != nil:
		r.step("binaries", "", fmt.Errorf("the binaries stay: %w", err))
		return names
	case reason != "":
		r.options.emit(Warning, "the binaries stay: "+reason, "directory", r.options.BinDir, "binaries", names)
		r.report(Step{"binaries", Kept, reason})
		return names
	case len(r.broken) > 0:
		r.report(Step{"binaries", Kept, "a broken configuration names the plugin: " + strings.Join(r.broken, ", ")})
		return names
	}
	r.step("binaries", "", r.removeBinaries(names))
	return nil
}

func (i *Installer) traces() bool {
	for _, path := range []string{i.binDir().In(i.options.plugin()), i.options.kubeconfigPath()} {
		if _, err := os.Lstat(path); path != "" && err == nil {
			return true
		}
	}
	files, err := i.listFiles()
	return err != nil || slices.ContainsFunc(files, func(name string) bool {
		data, err := i.readAsRuntimes(i.netDir().In(name))
		return err == nil && bytes.Contains(data, []byte(i.options.plugin()))
	})
}

// removeEntries undoes what the claim lists, and removes the plugin from every other list.
func (i *Installer) removeEntries(beside bool) error {
	var problems *multierror.Error
	r, err := i.remover(beside)
	if err == nil {
		var plan reconciler.Plan
		// Without the caller's context: a half-cleaned directory would be worse than a late one.
		plan, err = r.Remove(filesystem.WithObserver(context.Background(), i.observer))
		i.emitEdits(News, plan)
		for _, note := range plan.Notes {
			i.options.emit(Warning, note)
		}
	}
	problems = multierror.Append(problems, explain(err))
	files, err := i.listFiles()
	problems = multierror.Append(problems, err)
	for _, name := range files {
		if info, err := i.netDir().Stat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			problems = multierror.Append(problems, i.refuseLink(i.netDir().In(name)))
		}
	}
	return problems.ErrorOrNil()
}

// remover returns a reconciler for a removal, which ignores the content of the entry.
func (i *Installer) remover(beside bool) (*reconciler.Reconciler, error) {
	return i.newReconciler(reconciler.Want{
		Plugin: conflist.Plugin{Type: i.options.plugin(), Body: emptyEntry(i.options.plugin())},
		Mode:   i.options.Want.Mode, File: i.options.Want.File,
	}, beside)
}

// refuseLink returns an error for a link to a configuration that still names the plugin: runtimes
// follow the link, but the installer does not write outside of the directory.
func (i *Installer) refuseLink(path string) error {
	target, err := i.target(path)
	if err != nil {
		return nil //nolint:nilerr // a broken link leads nowhere
	}
	doc, err := i.readAsRuntimes(path)
	if err != nil || !bytes.Contains(doc, []byte(i.options.plugin())) {
		return nil //nolint:nilerr // the link does not lead to a configuration
	}
	return fmt.Errorf("%s: it is a symbolic link to %s, which names the plugin: take the plugin out of it there, and uninstall again",
		path, target)
}

func (i *Installer) listFiles() ([]string, error) {
	entries, err := i.netDir().List()
	if err != nil {
		return nil, fmt.Errorf("list the CNI configurations: %w", explain(err))
	}
	var names []string
	for _, entry := range entries {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(entry.Name())) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// removeKubeconfig removes the kubeconfig, and those that processes with other options wrote, and
// with each the daemon's records beside it.
func (i *Installer) removeKubeconfig(current claim) error {
	var problems *multierror.Error
	for _, path := range current.kubeconfigs(i.options.kubeconfigPath()) {
		problems = multierror.Append(problems, i.remove(path, "the plugin's kubeconfig"))
		for _, name := range i.options.Records {
			_, err := i.in(filepath.Dir(path)).Remove(name)
			problems = multierror.Append(problems, err)
		}
	}
	return problems.ErrorOrNil()
}

// needed returns the binaries of the claim, and the reason if running pods need them.
func (i *Installer) needed(current claim) (binaries []string, reason string, err error) {
	binaries = current.Binaries
	if plugin := i.options.plugin(); !slices.Contains(binaries, plugin) && i.options.bringsPlugin() {
		binaries = append(slices.Clone(binaries), plugin)
	}
	uses, err := cachedUses(i.options.CacheDir, i.options.plugin())
	switch {
	case isMissing(err):
		return binaries, "without libcni's cache it is unknown whether running pods need them; mount the node's /var/lib/cni at " +
			i.options.CacheDir + " and uninstall again, or purge when the pods are gone", nil
	case uses > 0:
		return binaries, fmt.Sprintf("%d running pods need them for their removal; uninstall again when those pods are gone", uses), nil
	}
	return binaries, "", err
}

func (i *Installer) removeBinaries(names []string) error {
	var problems *multierror.Error
	for _, name := range names {
		problems = multierror.Append(problems, i.remove(i.binDir().In(name), "a binary"))
	}
	return multierror.Append(problems, i.removeSecond()).ErrorOrNil()
}

// leave records what still exists in the claim.
func (i *Installer) leave(kept []string) error {
	return i.claims.update(i.observer, func(c *claim) {
		c.Binaries, c.Kubeconfig, c.Former, c.Configs = kept, "", nil, reconciler.Claim{}
		c.Session = session{Number: c.Session.Number}
	})
}

// directories returns the directories that this installer writes to, or did with other settings.
func (i *Installer) directories(current claim) []string {
	directories := []string{i.options.NetDir, i.options.RunDir, i.options.BinDir}
	for _, path := range current.kubeconfigs("") {
		if directory := filepath.Dir(path); !slices.Contains(directories, directory) {
			directories = append(directories, directory)
		}
	}
	return directories
}

// Outcome is the result of a step.
type Outcome string

// The outcomes.
const (
	Done     Outcome = "done"
	Kept     Outcome = "kept"      // on purpose
	Failed   Outcome = "failed"    // and may be tried again
	NotTried Outcome = "not tried" // because of another step's failure
)

// Step is one part of an uninstall.
type Step struct {
	// Name is "configuration", "marker", "kubeconfig", "binaries" or "claim".
	Name    string
	Outcome Outcome
	// Detail is additional information, or the error of a failed step. It may be empty.
	Detail string
}

// String is one line, in columns.
func (s Step) String() string { return fmt.Sprintf("%-13s  %-9s  %s", s.Name, s.Outcome, s.Detail) }

// UninstallOptions are the options of an uninstall. The zero value keeps what running pods need.
type UninstallOptions struct {
	// Purge removes the binaries even if running pods need them, and the uninstall marker.
	Purge bool
	// Progress, unless it is nil, is called after each step.
	Progress func(Step)
}
