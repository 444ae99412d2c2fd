// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// undo takes our entry out of a configuration. A list that was made of a single configuration goes, and the original comes back, unless
// somebody has changed the list: then it stays, without us.
func (i *Installer) undo(record claimedConfig) error {
	path := i.netDir().In(record.Name)
	doc, err := i.netDir().Read(record.Name, conflist.MaxSize)
	if isMissing(err) {
		return nil // whoever removed it has taken our entry with it
	}
	if err != nil || (record.Lifted == nil && !bytes.Contains(doc, []byte(pluginType))) {
		return err // whatever stands there now, it doesn't name us
	}
	edit, err := conflist.Remove(doc, pluginType)
	if err != nil {
		return err
	}
	original := digest(edit.Out) == record.Original
	if record.Lifted != nil && original {
		return i.giveBack(record.Name, *record.Lifted, doc)
	}
	changed, err := i.netDir().Write(record.Name, edit.Out, filesystem.Options{Like: record.Name, Expect: doc})
	if err != nil || !changed {
		return err
	}
	i.log.Info("took the plugin out of the CNI configuration", "file", path, "as_recorded", original)
	if record.Lifted != nil {
		i.log.Warn("the list that was made of a single configuration stays, because somebody has changed it since",
			"file", path, "from", record.Lifted.Name)
	}
	return nil
}

// giveBack restores a single configuration, which sorts before the list that replaced it, and then removes the list. One that stands
// there again is newer than what we have, and stays.
func (i *Installer) giveBack(list string, lifted liftedConfig, doc []byte) error {
	if _, err := i.netDir().Stat(lifted.Name); isMissing(err) {
		if _, err := i.netDir().Write(lifted.Name, lifted.Content, filesystem.Options{Like: list}); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if _, err := i.netDir().RemoveExpected(list, doc); err != nil {
		return err
	}
	i.log.Info("gave the single CNI configuration back", "file", i.netDir().In(lifted.Name), "instead_of", list)
	return nil
}
