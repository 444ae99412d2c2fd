// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// lockMode is how a process holds the node: by an advisory lock on the CNI binary directory, which needs no file of its own and goes with
// the process.
type lockMode bool

const (
	shared    lockMode = false // daemons: an old and a new one may overlap
	exclusive lockMode = true  // uninstalls: nobody must put back what goes
)

// errLocked means that somebody holds the lock in a way that excludes the one asked for.
var errLocked = errors.New("locked")

// lock takes the lock, until release is called. A daemon waits for an uninstall to end; an uninstall doesn't wait for a daemon, which
// only ends when it is told to: the error is ErrInUse. Without locks in the file system there is a warning.
func (i *Installer) lock(ctx context.Context, mode lockMode) (release func(), err error) {
	directory, err := os.Open(i.options.BinDir)
	if err != nil {
		return nil, fmt.Errorf("lock the node's CNI binary directory: %w", explain(err))
	}
	release = func() {
		unlock(directory) // a process that is being started may have a copy of the descriptor, which would keep the lock
		directory.Close() //nolint:errcheck // opened for reading
	}
	for said := false; ; said = true {
		err := tryLock(directory, mode)
		switch {
		case err == nil:
			return release, nil
		case errors.Is(err, errors.ErrUnsupported):
			i.options.tell(Warning, "locks don't work here; take care that nobody uninstalls while a daemon runs", "error", err)
			return release, nil
		case mode == exclusive:
			release()
			return nil, ErrInUse
		case !said:
			i.options.tell(Warning, "waiting for an uninstall on this node to end; if there is none, see who else holds a lock (flock) on the directory",
				"directory", i.options.BinDir)
		}
		select {
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond): // locks have no events
		}
	}
}

// alone reports whether no other daemon and no uninstall is at work: then nobody but the plugin, in its run directory, is writing.
func (i *Installer) alone(ctx context.Context) bool {
	release, err := i.lock(ctx, exclusive)
	if err == nil {
		release()
	}
	return err == nil
}

// Attend says that a daemon works on this node, until release is called, which lets an older one that still runs go on. It makes the
// plugin's run directory, which may be lost with a reboot. It waits for an uninstall that is under way, or for the context.
func (i *Installer) Attend(ctx context.Context) (release func(), err error) {
	i = i.at(ctx)
	alone := i.alone(ctx)
	unlock, err := i.lock(ctx, shared)
	if err != nil {
		return nil, err
	}
	i.catchUp(i.netDir(), i.binDir(), i.runDir())
	if err := i.forgetRequest(); err != nil && !isMissing(err) {
		i.options.tell(Warning, "can't forget that an earlier daemon was asked to uninstall", "error", err)
	}
	if alone {
		i.removeStale(i.options.NetDir, -time.Hour)
		i.removeStale(i.options.BinDir, -time.Hour)
	}
	if err := i.runDir().Make(runDirMode); err != nil {
		i.options.tell(Warning, "can't make the plugin's run directory yet", "error", err)
	}
	return func() {
		if err := i.claims.leave(i.observer); err != nil {
			i.options.tell(Warning, "can't tell other daemons that this one ends", "error", err)
		}
		unlock()
	}, nil
}
