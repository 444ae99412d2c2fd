// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"io/fs"
	"net"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-multierror"
)

// listensWithin bounds how long a socket is asked whether a program listens.
const listensWithin = time.Second

// sockets are the paths of those that a daemon has left. Where a program listens, the socket is that program's: two meshes may have one of the
// same name.
func (i *Installer) sockets(ctx context.Context) []string {
	dialer := net.Dialer{Timeout: listensWithin}
	var left []string
	for _, name := range i.options.Sockets {
		path := i.runDir().In(name)
		info, err := i.in(filepath.Dir(path)).Stat(filepath.Base(path))
		if err != nil || info.Mode().Type() != fs.ModeSocket {
			continue
		}
		if connection, err := dialer.DialContext(context.WithoutCancel(ctx), "unix", path); err == nil {
			connection.Close() //nolint:errcheck // nothing was said
			continue
		}
		left = append(left, path)
	}
	return left
}

// removeSockets removes them, and the directories below the run directory that have nothing else.
func (i *Installer) removeSockets(ctx context.Context) error {
	var problems *multierror.Error
	for _, path := range i.sockets(ctx) {
		_, err := i.in(filepath.Dir(path)).Remove(filepath.Base(path))
		problems = multierror.Append(problems, err)
	}
	for _, name := range i.options.Sockets {
		if filepath.Dir(name) == "." {
			continue
		}
		below := i.in(i.runDir().In(filepath.Dir(name)))
		if entries, err := below.List(); err == nil && len(entries) == 0 {
			_, err = below.RemoveEmpty()
			problems = multierror.Append(problems, err)
		}
	}
	return problems.ErrorOrNil()
}
