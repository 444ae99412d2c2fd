// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package victim

import (
	"context"
	"errors"
)

// Serve is for Linux.
func Serve(func() error) error { return errors.ErrUnsupported }

// Process has no values here.
type Process struct{}

// Start is for Linux.
func Start(context.Context, string, string) (*Process, error) { return nil, errors.ErrUnsupported }

// Run is for Linux.
func (*Process) Run(Ending) (End, error) { return End{}, errors.ErrUnsupported }
