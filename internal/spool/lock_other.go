// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package spool

import (
	"context"
	"errors"
	"os"
)

const (
	shared    = 0
	exclusive = 0
)

func lock(context.Context, *os.File, int) error { return errors.ErrUnsupported }

func open(string, int) (*os.File, error) { return nil, errors.ErrUnsupported }
