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

	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// maxMarker bounds the size of the note of an uninstall.
const maxMarker = 64 << 10

// marker is the content of the note of an uninstall.
type marker struct {
	Owner string    `json:"owner"`
	Time  time.Time `json:"time"`
}

// uninstalled reports whether the plugin was uninstalled. Its binary then stays for the pods that
// were made before, and lets every command pass. A note that a user other than root could have
// written does not count. A call reads the note once.
func (c *call) uninstalled() bool {
	if !c.noteRead {
		c.noteRead, c.gone = true, c.readNote()
	}
	return c.gone
}

func (c *call) readNote() bool {
	path, err := c.Executable()
	if err != nil {
		return false // without the path no note can be found
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
	c.log.Info("the plugin was uninstalled, and lets everything pass; take it out of the CNI configuration", "detail", c.report.Detail)
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

// refusedMark says since when no node agent has answered and the API server has refused the
// credential that the agent left.
func (c *config) refusedMark() mark { return mark{filepath.Join(c.RunDir, c.plugin+".refused")} }

// abandoned says since when no agent has looked after the plugin, and what to run on the node. It
// is empty if there is a node agent, or if one may still come.
func (c *call) abandoned(conf *config, asked error, now time.Time) string {
	if !isAbandoned(asked) {
		return ""
	}
	since := conf.refusedMark()
	age, marked, err := since.age(now)
	if err == nil && (!marked || conf.writtenWithin(age, now)) {
		age, err = 0, since.set(now)
	}
	if err != nil {
		c.log.Debug("can't note since when the node agent is gone", "error", err.Error())
	}
	if age < conf.AbandonedAfter.Or(pluginconf.DefaultAbandonedAfter) {
		return ""
	}
	return fmt.Sprintf("no node agent answers, and the API server refuses its credential, since %s: if the mesh was uninstalled, "+
		"%s; otherwise install it again", now.Add(-age).UTC().Format(time.RFC3339), c.Uninstall)
}

// isAbandoned reports whether no program listens on the node agent's socket, and the API server
// refuses the credential that the agent left.
func isAbandoned(err error) bool {
	var all *podsource.ChainError
	if !errors.As(err, &all) || len(all.Failures) < 2 {
		return false
	}
	agent, server := all.Failures[0].Err, all.Failures[1].Err
	return (errors.Is(agent, fs.ErrNotExist) || errors.Is(agent, syscall.ECONNREFUSED)) &&
		(errors.Is(server, podsource.ErrUnauthorized) || errors.Is(server, podsource.ErrForbidden))
}

// writtenWithin reports whether the kubeconfig was written less than d before now.
func (c *config) writtenWithin(d time.Duration, now time.Time) bool {
	info, err := os.Stat(c.Kubeconfig)
	return err == nil && now.Sub(info.ModTime()) < d
}

// isAttended reports whether a source knew the pod, or knew that there is no such pod. Then the
// node agent answers, or the API server accepts its credential.
func isAttended(err error) bool {
	return err == nil || errors.Is(err, podsource.ErrNotFound) || errors.Is(err, podsource.ErrStalePod)
}

// attended removes the refused mark.
func (c *call) attended(conf *config) {
	if err := os.Remove(conf.refusedMark().path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Debug("can't remove the note that the node agent is gone", "error", err.Error())
	}
}

const (
	// unreadyFor is how long STATUS may report that the plugin isn't ready. Then it stops, which gives
	// an agent that can't start on a node that isn't ready a chance. After 5 minutes Kubernetes would
	// evict the pods that run there (DefaultTolerationSeconds).
	unreadyFor = 4 * time.Minute
	// readyFor is how long an answer of the API server counts: a runtime asks every five seconds, on
	// every node.
	readyFor = 30 * time.Second
)

// mark is a file in the run directory, which a reboot clears. Its age says since when something has
// been the case.
type mark struct{ path string }

// readyMark says when the plugin was last ready, if it ever was.
func (c *config) readyMark() mark { return mark{filepath.Join(c.RunDir, c.plugin+".ready")} }

// askedMark says when STATUS, with the policy strict, first found a plugin not ready that never
// was.
func (c *config) askedMark() mark { return mark{filepath.Join(c.RunDir, c.plugin+".asked")} }

// age returns how long ago the mark was set. A mark without a file, or from the future, was not
// found.
func (m mark) age(now time.Time) (age time.Duration, found bool, err error) {
	info, err := os.Lstat(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	age = now.Sub(info.ModTime())
	return age, age >= 0, nil
}

// set sets the mark to now.
func (m mark) set(now time.Time) error {
	if _, err := (filesystem.Directory{Path: filepath.Dir(m.path)}).Write(filepath.Base(m.path), nil, filesystem.Options{}); err != nil {
		return err
	}
	return os.Chtimes(m.path, now, now)
}
