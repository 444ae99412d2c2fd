// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"io/fs"
	"net"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// WatcherDirectory is where the process that watches the node's pods has its socket, in the run directory.
const WatcherDirectory = "node-watcher"

// listensWithin bounds how long a socket is asked whether somebody listens.
const listensWithin = time.Second

// sockets are those that a daemon has left, by directory and name. Where somebody listens, it is somebody else's: Istio's daemon has one of
// them in the same place.
func (i *Installer) sockets() []string {
	dialer := net.Dialer{Timeout: listensWithin}
	var left []string
	for _, name := range []string{
		podsource.AgentSocket, podsource.IstioLogSocket, filepath.Join(WatcherDirectory, podsource.AgentSocket),
	} {
		path := i.runDir().In(name)
		info, err := i.in(filepath.Dir(path)).Stat(filepath.Base(path))
		if err != nil || info.Mode().Type() != fs.ModeSocket {
			continue
		}
		if connection, err := dialer.DialContext(context.Background(), "unix", path); err == nil {
			connection.Close() //nolint:errcheck // nothing was said
			continue
		}
		left = append(left, path)
	}
	return left
}

// removeSockets removes them.
func (i *Installer) removeSockets() error {
	var problems *multierror.Error
	for _, path := range i.sockets() {
		_, err := i.in(filepath.Dir(path)).Remove(filepath.Base(path))
		problems = multierror.Append(problems, err)
	}
	watcher := filesystem.Directory{Path: i.runDir().In(WatcherDirectory), Observer: i.observer}
	if entries, err := watcher.List(); err == nil && len(entries) == 0 {
		_, err = watcher.RemoveEmpty()
		problems = multierror.Append(problems, err)
	}
	return problems.ErrorOrNil()
}
