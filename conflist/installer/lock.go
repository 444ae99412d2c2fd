// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// lockMode is how a process holds a lock, which ends with the process.
type lockMode bool

const (
	shared    lockMode = false // daemons: an old and a new one may overlap
	exclusive lockMode = true  // uninstalls: a daemon would restore what they remove
)

// errLocked means that another process holds the lock in a conflicting mode.
var errLocked = errors.New("locked")

// hold is what a process has locked while it works on the node: a file of the plugin's own, and the
// CNI binary directory, which all meshes of the node share. The file keeps a daemon and an
// uninstall of the plugin apart. The directory does so for versions that do not know the file, and
// shows whether a process of any mesh may be writing in it.
type hold struct {
	own       *os.File // nil if it cannot be created or locked
	directory *os.File
	// sole means that no other process of any mesh was at work when the directory was locked.
	sole bool
}

// release ends the locks. A process that is being started may have copies of the descriptors, which
// would keep the locks otherwise.
func (h *hold) release() {
	for _, file := range []*os.File{h.own, h.directory} {
		if file != nil {
			unlock(file)
			file.Close() //nolint:errcheck // nothing was written
		}
	}
}

func (i *Installer) openHold() (*hold, error) {
	directory, err := os.Open(i.options.BinDir)
	if err != nil {
		return nil, fmt.Errorf("lock the node's CNI binary directory: %w", explain(err))
	}
	return &hold{directory: directory}, nil
}

// tryOwn locks the plugin's file, which it creates if it is missing and flag is [os.O_CREATE]. An
// uninstall removes the file. The lock of a file that was removed meanwhile excludes no other
// process, so tryOwn then locks a new file.
func (i *Installer) tryOwn(mode lockMode, flag int) (*os.File, error) {
	root, err := os.OpenRoot(i.options.BinDir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // a handle, nothing is written through it
	for {
		file, err := root.OpenFile(i.options.lockName(), os.O_RDONLY|flag, 0o600)
		if err != nil {
			return nil, err
		}
		if err := tryLock(file, mode); err != nil {
			file.Close() //nolint:errcheck // nothing was written
			return nil, err
		}
		locked, err := file.Stat()
		if there, lookErr := root.Stat(i.options.lockName()); err == nil && lookErr == nil && os.SameFile(locked, there) {
			return file, nil
		}
		(&hold{own: file}).release()
	}
}

// holdAsDaemon locks for a daemon, which waits until an uninstall ends. If no mesh is at work in
// the directory, it calls alone. If the file system has no locks, it logs a warning.
func (i *Installer) holdAsDaemon(ctx context.Context, alone func()) (*hold, error) {
	h, err := i.openHold()
	if err != nil {
		return nil, err
	}
	err = i.await(ctx, func() (err error) {
		h.own, err = i.tryOwn(shared, os.O_CREATE)
		return i.withoutOwn(err)
	})
	if err == nil && tryLock(h.directory, exclusive) == nil {
		h.sole = true
		alone()
	}
	if err == nil {
		err = i.await(ctx, func() error { return tryLock(h.directory, shared) })
	}
	return i.settle(h, err)
}

// holdAlone locks for an uninstall. It does not wait for a daemon of the plugin, which runs until
// it is stopped, but returns ErrInUse. If other meshes have locked the directory, a shared lock is
// enough.
func (i *Installer) holdAlone(ctx context.Context) (*hold, error) {
	h, err := i.openHold()
	if err != nil {
		return nil, err
	}
	if h.own, err = i.tryOwn(exclusive, os.O_CREATE); errors.Is(err, errLocked) {
		err = ErrInUse
	} else {
		err = i.withoutOwn(err)
	}
	if err == nil {
		err = i.await(ctx, func() error {
			err := tryLock(h.directory, exclusive)
			h.sole = err == nil
			switch {
			case !errors.Is(err, errLocked):
				return err
			case h.own == nil || i.claims.mayLackLock():
				return ErrInUse
			}
			return tryLock(h.directory, shared)
		})
	}
	return i.settle(h, err)
}

// releaseAlone ends what holdAlone began, and removes the plugin's lock file.
func (i *Installer) releaseAlone(h *hold) {
	if h.own != nil {
		if _, err := i.binDir().Remove(i.options.lockName()); err != nil {
			i.options.emit(Warning, "can't remove the file that daemons and uninstalls lock", "error", err)
		}
	}
	h.release()
}

// running reports whether a daemon or an uninstall of the plugin holds the node, and creates no
// file for that. Without locks it returns false.
func (i *Installer) running() bool {
	h, err := i.openHold()
	if err != nil {
		return false
	}
	defer h.release()
	if h.own, err = i.tryOwn(exclusive, 0); err != nil {
		h.own = nil
	}
	return errors.Is(err, errLocked) || errors.Is(tryLock(h.directory, exclusive), errLocked) && i.claims.mayLackLock()
}

// withoutOwn continues without the plugin's file if that cannot be created or locked, as on a full
// disk: the lock of the directory remains.
func (i *Installer) withoutOwn(err error) error {
	if err == nil || errors.Is(err, errLocked) {
		return err
	}
	if !errors.Is(err, errors.ErrUnsupported) { // else the lock of the directory reports it
		i.options.emit(Warning, "can't lock the plugin's own file; another mesh's daemon on this node may keep an uninstall from beginning",
			"file", i.binDir().In(i.options.lockName()), "error", explain(err))
	}
	return nil
}

// settle ends the locks after an error. If the file system has no locks, it logs a warning.
func (i *Installer) settle(h *hold, err error) (*hold, error) {
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		i.options.emit(Warning, "locks don't work here; make sure that no uninstall begins while a daemon runs", "error", err)
	case err != nil:
		h.release()
		return nil, err
	}
	return h, nil
}

// await tries to lock until it succeeds, fails with another error, or the context ends.
func (i *Installer) await(ctx context.Context, try func() error) error {
	for failures := 0; ; failures++ {
		err := try()
		if !errors.Is(err, errLocked) {
			return err
		}
		if failures == 1 { // the first time it may be a daemon that is starting
			i.options.emit(Warning, "waiting for an uninstall on this node to end; "+
				"if there is none, see which other program holds a lock (flock) on the directory",
				"directory", i.options.BinDir)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond): // locks have no events
		}
	}
}
