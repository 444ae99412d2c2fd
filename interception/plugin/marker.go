// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// maxMarker bounds what is read of it.
const maxMarker = 64 << 10

// marker is what the note says.
type marker struct {
	Owner string    `json:"owner"`
	Time  time.Time `json:"time"`
}

// uninstalled reports whether the plugin was uninstalled: the binary stays for the pods that were
// made before, and lets every command pass. A note that another user than root could have written
// does not count. The note is read once in a call.
func (c *call) uninstalled() bool {
	if !c.noteRead {
		c.noteRead, c.gone = true, c.readNote()
	}
	return c.gone
}

func (c *call) readNote() bool {
	path, err := c.Executable()
	if err != nil {
		return false // and nobody could have told
	}
	note, err := c.readMarker(filepath.Join(filepath.Dir(path), c.Name+".uninstalled"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err != nil:
		c.log.Warn("the note that the plugin was uninstalled is not trusted: remove it, or install the plugin again", "error", err.Error())
		return false
	}
	c.report.Reason = reasonUninstalled
	c.report.Detail = boundedTo(fmt.Sprintf("by %s, %s", note.Owner, note.Time.Format(time.RFC3339)), maxField)
	c.log.Info("everything is let pass, because the plugin was uninstalled; take it out of the CNI configuration", "detail", c.report.Detail)
	return true
}

// readMarker reads the note that the daemon leaves beside the binary when it uninstalls the plugin.
func (c *call) readMarker(path string) (marker, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return marker{}, err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() || owner.Uid != 0 || info.Mode().Perm()&0o022 != 0 {
		return marker{}, fmt.Errorf("%s (%s) is not a regular file that root owns and only root may write", path, info.Mode())
	}
	data, err := filesystem.Directory{Path: filepath.Dir(path)}.Read(filepath.Base(path), maxMarker)
	if err != nil {
		return marker{}, err
	}
	var note marker
	if err := json.Unmarshal(data, &note); err != nil || note.Owner == "" || note.Time.IsZero() {
		return marker{}, fmt.Errorf("%s has no owner or time: it is not what %s writes", path, c.Installer)
	}
	return note, nil
}
