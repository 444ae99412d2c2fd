// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrNoChown is in the error for a file whose owner, taken from another file, cannot be kept for
// lack of a capability. Such an error satisfies [fs.ErrPermission] too.
var ErrNoChown = errors.New("to give a file to another user the process needs the capability CAP_CHOWN, root or not: " +
	"add CHOWN to the container's securityContext.capabilities")

// look is a file's permission bits and its owner. They come from another file; otherwise the owner
// is the process's effective user, and any group will do.
type look struct {
	mode  fs.FileMode
	owner *owner // nil for the process's own user
}

func (d Directory) lookOf(o Options) (look, error) {
	if o.Like != "" {
		info, err := d.statRegular(o.Like)
		if err != nil {
			return look{}, fmt.Errorf("take mode and owner of another file: %w", err)
		}
		return look{mode: info.Mode().Perm(), owner: ownerOf(info)}, nil
	}
	return look{mode: cmp.Or(o.Mode, 0o600).Perm()}, nil
}

func (l look) matches(info fs.FileInfo) bool {
	if !hasOwners {
		return true
	}
	has := ownerOf(info)
	if l.owner == nil {
		return info.Mode().Perm() == l.mode && has.uid == os.Geteuid()
	}
	return info.Mode().Perm() == l.mode && *has == *l.owner
}

// give sets the look of a file that is being written, the owner first, because a chown may clear
// mode bits. It fails if the file system does not support them: a file for one user must not
// silently be for all.
func (f file) give(l look) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if l.owner != nil && *ownerOf(info) != *l.owner {
		call := Call{Operation: Chown, Path: f.path, UID: l.owner.uid, GID: l.owner.gid}
		if err := f.in.observe(call, func() error { return f.Chown(l.owner.uid, l.owner.gid) }); err != nil {
			return explainChown(*l.owner, nameless(err))
		}
	}
	call := Call{Operation: Chmod, Path: f.path, Mode: l.mode}
	if err := f.in.observe(call, func() error { return f.Chmod(l.mode) }); err != nil {
		return err
	}
	if info, err = f.Stat(); err != nil {
		return err
	}
	if !l.matches(info) {
		return fmt.Errorf("the file system gave the file mode %v, for %v, and owner %v (user, group); use one that keeps owners and permission bits",
			info.Mode().Perm(), l.mode, *ownerOf(info))
	}
	return nil
}

// explainChown adds the wanted owner to the error, and what the system requires for it.
func explainChown(o owner, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w; %w", err, ErrNoChown)
	}
	return fmt.Errorf("keep the owner, user %d and group %d: %w", o.uid, o.gid, err)
}
