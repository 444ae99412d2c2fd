// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// marker is the file beside the binary that records that the plugin was uninstalled. A binary that
// stays after that is called only for pods that were created before.
type marker struct {
	Owner   string    `json:"owner"`
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
}

// mark writes the marker, unless it exists: the first uninstall counts. An uninstall that was
// killed may have left the second marker unwritten.
func (i *Installer) mark() error {
	note, err := i.binDir().Read(i.options.markerName(), maxClaim)
	if isMissing(err) {
		if note, err = i.newMarker(); err == nil {
			_, err = i.binDir().Write(i.options.markerName(), note, filesystem.Options{})
		}
	}
	if note == nil {
		return err
	}
	return errors.Join(err, i.markSecond(note))
}

func (i *Installer) newMarker() ([]byte, error) {
	note := marker{Owner: i.options.Owner, Version: i.options.Version, Time: i.options.Now().UTC().Truncate(time.Second)}
	data, err := json.MarshalIndent(note, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("render the uninstall marker: %w", err)
	}
	return append(data, '\n'), nil
}

func (i *Installer) unmark() (bool, error) {
	removed, err := i.binDir().Remove(i.options.markerName())
	return removed, errors.Join(err, i.unmarkSecond())
}

// RequestUninstall asks the daemon that runs on this node to uninstall when it is stopped. A daemon
// that starts later forgets the request, and so does a reboot.
func (i *Installer) RequestUninstall(ctx context.Context) error {
	i = i.at(ctx)
	note := fmt.Sprintf("asked by %s at %s\n", i.options.Owner, i.options.Now().UTC().Format(time.RFC3339))
	err := i.runDir().Make(runDirMode)
	if err == nil {
		_, err = i.runDir().Write(i.options.requestName(), []byte(note), filesystem.Options{})
	}
	if err != nil {
		return fmt.Errorf("ask the daemon to uninstall: %w", explain(err))
	}
	return nil
}

// UninstallRequested reports whether any process has called [Installer.RequestUninstall] since this
// daemon was started.
func (i *Installer) UninstallRequested() bool {
	_, err := i.runDir().Read(i.options.requestName(), maxClaim)
	return err == nil
}

// forgetRequest removes the request to an earlier daemon, or to this one after it is done.
func (i *Installer) forgetRequest() error {
	_, err := i.runDir().Remove(i.options.requestName())
	return err
}
