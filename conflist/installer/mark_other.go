// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package installer

import (
	"errors"
	"os"
)

func mark(*os.File, uint64) error { return errors.ErrUnsupported }

func isMarked(*os.File, uint64) (bool, error) { return false, errors.ErrUnsupported }
