// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"fmt"
	"io/fs"
)

// CheckMode refuses unsafe permission bits for a file with a token. The owner must be able to read
// the file and may be able to write it, the group may be able to read it, and nothing else is
// allowed.
func CheckMode(mode fs.FileMode) error {
	if mode&^0o640 != 0 || mode&0o400 == 0 {
		return fmt.Errorf("it is %#o in octal; the file holds a token: write 0600, or 0640 for a group that may read it", mode)
	}
	return nil
}
