// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"fmt"
	"io/fs"
	"os"
)

// ReadTrusted returns the content of a regular file that [CheckTrusted] accepts, through links if
// the path has any. A file longer than limit bytes is refused with [ErrTooLarge].
func ReadTrusted(path string, limit int64) ([]byte, error) {
	return readChecked(path, limit, CheckTrusted)
}

// CheckTrusted refuses the file or directory at a path if a user other than root and this process's
// own may write to it or owns it. On systems without owners any owner will do.
func CheckTrusted(path string, info fs.FileInfo) error {
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s has mode %s, and other users may write to it: forbid that (chmod go-w)", path, info.Mode())
	}
	if owner := ownerOf(info); hasOwners && (owner == nil || owner.uid != 0 && owner.uid != os.Geteuid()) {
		return fmt.Errorf("%s belongs to another user: give it to root (chown)", path)
	}
	return nil
}
