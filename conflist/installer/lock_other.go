// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package installer

import (
	"errors"
	"os"
)

// tryLock returns an error: this system has no locks.
func tryLock(*os.File, lockMode) error { return errors.ErrUnsupported }

func unlock(*os.File) {}
