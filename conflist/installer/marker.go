// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// marker is the note beside the binary that says that the plugin was uninstalled: a binary that stays after that is there only to be
// called for pods that were made before.
type marker struct {
	Owner   string    `json:"owner"`
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
}

// mark writes the marker, unless there is one: the first uninstall counts.
func (i *Installer) mark() error {
	if _, err := i.binDir().Read(i.options.markerName(), maxClaim); !isMissing(err) {
		return err
	}
	note := marker{Owner: i.options.Owner, Version: i.options.Version, Time: i.options.Now().UTC().Truncate(time.Second)}
	data, err := json.MarshalIndent(note, "", "  ")
	if err != nil {
		return fmt.Errorf("render the uninstall marker: %w", err)
	}
	_, err = i.binDir().Write(i.options.markerName(), append(data, '\n'), filesystem.Options{})
	return errors.Join(err, i.markSecond(append(data, '\n')))
}

// unmark removes the marker, and reports whether there was one.
func (i *Installer) unmark() (bool, error) {
	removed, err := i.binDir().Remove(i.options.markerName())
	return removed, errors.Join(err, i.unmarkSecond())
}
