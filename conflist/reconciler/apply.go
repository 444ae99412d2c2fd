// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// errMoved means that the directory has changed since the plan was made and must be read again.
var errMoved = errors.New("another program is writing to the directory")

// apply takes a plan's steps in order up to the first that fails, and counts those completed.
func (r *Reconciler) apply(plan *Plan) error {
	for _, s := range plan.steps {
		err := r.do(s)
		if errors.Is(err, filesystem.ErrChanged) {
			return fmt.Errorf("%s: %w: %w", s, errMoved, err)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		plan.Done++
	}
	return nil
}

func (r *Reconciler) do(s step) error {
	switch s.op {
	case opRecord:
		return r.o.Claims.Update(func(c *Claim) { *c = c.with(s.place) })
	case opForget:
		return r.o.Claims.Update(func(c *Claim) { *c = c.without(s.file) })
	case opMakeDirectory:
		return r.directory(s.file).Make(0o755)
	case opRemoveDirectory:
		_, err := r.directory(s.file).RemoveEmpty()
		return err
	case opNudge:
		return r.directory(".").Nudge()
	case opRemove:
		return r.remove(s)
	case opWrite:
		return r.write(s)
	}
	return fmt.Errorf("%q is not a step", s.op)
}

// directory opens the directory of CNI configurations, or one below it. If another program replaces
// a directory below it with a link, nothing is read or written through that link.
func (r *Reconciler) directory(name string) filesystem.Directory {
	d := filesystem.Directory{Path: filepath.Join(r.o.Directory, filepath.FromSlash(name)), Observer: r.calls}
	if name != "." {
		d.Within = r.o.Directory
	}
	return d
}

// in returns the directory of a file. Neither it nor one above it may be a link, which could lead
// to another program's directory.
func (r *Reconciler) in(file string) (filesystem.Directory, error) {
	above := path.Dir(file)
	if above == "." {
		return r.directory("."), nil
	}
	route, err := r.directory(".").Follow(above, r.o.NodeDirectory)
	if err == nil && route.Target == above {
		var info fs.FileInfo
		if info, err = r.directory(path.Dir(above)).Stat(path.Base(above)); err == nil && info.IsDir() {
			return r.directory(above), nil
		}
	}
	return filesystem.Directory{}, fmt.Errorf("%s is not a directory any more: %w", above, errors.Join(filesystem.ErrChanged, err))
}

func (r *Reconciler) write(s step) error {
	d, err := r.in(s.file)
	if err != nil {
		return err
	}
	if s.link != "" {
		if route, err := r.directory(".").Follow(s.link, r.o.NodeDirectory); err != nil || route.Target != s.file {
			return fmt.Errorf("%s now leads elsewhere: %w", s.link, errors.Join(filesystem.ErrChanged, err))
		}
	}
	name, like := path.Base(s.file), ""
	if _, err := d.Stat(name); (err == nil) != (s.expect != nil) {
		return errors.Join(filesystem.ErrChanged, err)
	}
	if s.like != "" {
		like = path.Base(s.like)
		if _, err := d.Stat(like); err != nil {
			return errors.Join(filesystem.ErrChanged, err)
		}
	}
	_, err = d.Write(name, s.data, filesystem.Options{Mode: s.mode, Like: like, Expect: s.expect, New: s.expect == nil})
	return err
}

func (r *Reconciler) remove(s step) error {
	d, err := r.in(s.file)
	if err != nil {
		return err
	}
	_, err = d.RemoveExpected(path.Base(s.file), s.expect)
	return err
}

// catchUp syncs what an earlier process may have changed before it was killed, and removes the
// temporary files it left, if they are that old. It includes the networks' directories.
func (r *Reconciler) catchUp(old time.Duration) error {
	dir, _, err := r.read()
	if err != nil {
		return err
	}
	directories := []string{"."}
	for name, f := range dir {
		if f.Mode.IsDir() {
			directories = append(directories, name)
		}
	}
	for _, name := range directories {
		d := r.directory(name)
		if err := d.Sync(); err != nil {
			return err
		}
		if _, err := d.RemoveStale(r.o.Now().Add(-old)); err != nil {
			return err
		}
	}
	r.caughtUp = true
	return nil
}

// staleAfter is the age at which a temporary file counts as a leftover. Another process may still
// be writing a younger one; no write takes that long.
const staleAfter = time.Minute

// read reads the directory and the claim.
func (r *Reconciler) read() (Snapshot, Claim, error) {
	claim, err := r.o.Claims.Load()
	if err != nil {
		return nil, claim, err
	}
	dir, err := readSnapshot(r.o.Directory, r.o.NodeDirectory, claim)
	return dir, claim, err
}

// look reads the directory and the claim, and has [Decide] or [DecideRemoval] make a plan.
func (r *Reconciler) look(decide func(Snapshot, Claim, Want, time.Time) Plan) (Plan, error) {
	dir, claim, err := r.read()
	if err != nil {
		return Plan{}, err
	}
	return decide(dir, claim, r.o.Want, r.o.Now()), nil
}
