// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/meshcni/meshcni/conflist"
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
func (i *Installer) InspectRemoval() ([]Removal, error) {
	current, err := i.claims.load()
	if err != nil && !isMissing(err) {
		current = claim{} // an uninstall looks for what is installed instead
	}
	removals, err := i.entriesToRemove(current)
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Compact([]string{kubeconfigPath(i.settings), current.Kubeconfig}) {
		if _, err := os.Lstat(path); path != "" && err == nil {
			removals = append(removals, Removal{Path: path, Reason: "the plugin's kubeconfig, with a token in it"})
		}
	}
	binaries, err := i.binariesToRemove(current)
	return append(removals, binaries...), err
}

func (i *Installer) entriesToRemove(current claim) ([]Removal, error) {
	files, err := i.listFiles()
	if err != nil {
		return nil, err
	}
	var removals []Removal
	for _, name := range files {
		doc, err := i.netDir().Read(name, conflist.MaxSize)
		if err != nil || !bytes.Contains(doc, []byte(pluginType)) {
			continue // an uninstall leaves it alone, too, or says why not
		}
		edit, err := conflist.Remove(doc, pluginType)
		removal := Removal{Path: i.netDir().In(name), Edited: true, Reason: "the plugin's entry goes"}
		record := current.config(name)
		switch {
		case err != nil:
			removal.Kept, removal.Reason = true, "the plugin can't be taken out of it: "+err.Error()
		case !edit.Changed:
			continue
		case record != nil && record.Lifted != nil && digest(edit.Out) == record.Original:
			removal.Reason = fmt.Sprintf("%s takes its place again", filepath.Base(record.Lifted.Name))
		}
		removals = append(removals, removal)
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
