// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"os"
	"path/filepath"
)

// A Removal is one step that an uninstall would take.
type Removal struct {
	// Path is the file's. It is removed, edited (Edited), or kept (Kept).
	Path   string
	Edited bool
	Kept   bool
	Reason string
}

// InspectRemoval says what an uninstall would do now, in its order, and changes nothing.
func (i *Installer) InspectRemoval(ctx context.Context) ([]Removal, error) {
	i = i.at(ctx)
	current, err := i.claims.load()
	if err != nil && !isMissing(err) {
		current = claim{} // an uninstall looks for what is installed instead
	}
	removals, err := i.entriesToRemove()
	if err != nil {
		return nil, err
	}
	for _, path := range current.kubeconfigs(i.options.kubeconfigPath()) {
		if _, err := os.Lstat(path); err == nil {
			removals = append(removals, Removal{Path: path, Reason: "the plugin's kubeconfig, with a token in it"})
		}
	}
	for _, path := range i.sockets(ctx) {
		removals = append(removals, Removal{Path: path, Reason: "a daemon's socket, on which no program listens"})
	}
	binaries, err := i.binariesToRemove(current)
	return append(removals, binaries...), err
}

func (i *Installer) entriesToRemove() ([]Removal, error) {
	r, err := i.remover(false)
	if err != nil {
		return nil, err
	}
	plan, err := r.PlanRemoval()
	if err != nil {
		return nil, explain(err)
	}
	var removals []Removal
	for _, e := range plan.Edits() {
		removals = append(removals, Removal{Path: i.netDir().In(filepath.FromSlash(e.File)), Edited: !e.Removed, Reason: e.Why})
	}
	if plan.Err != nil {
		removals = append(removals, Removal{Path: i.options.NetDir, Kept: true, Reason: plan.Err.Error()})
	}
	return removals, nil
}

func (i *Installer) binariesToRemove(current claim) ([]Removal, error) {
	names, reason, err := i.needed(current)
	if err != nil {
		return nil, err
	}
	var removals []Removal
	for _, name := range names {
		if _, err := i.binDir().Stat(name); err == nil {
			removals = append(removals, Removal{Path: i.binDir().In(name), Kept: reason != "", Reason: reason})
		}
	}
	return removals, nil
}
