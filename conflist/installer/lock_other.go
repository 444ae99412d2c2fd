// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package installer

import (
	"errors"
	"os"
)

// tryLock says that there are no locks here.
func tryLock(*os.File, lockMode) error { return errors.ErrUnsupported }

// unlock has nothing to end.
func unlock(*os.File) {}
