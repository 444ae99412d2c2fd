// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"os"
	"time"

	"github.com/meshcni/meshcni/interception"
)

func sinceBoot() (time.Duration, error) { return 0, interception.ErrUnsupported }

func tryLock(*os.File) (locked bool, err error) { return false, interception.ErrUnsupported }
