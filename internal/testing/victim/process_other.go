// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package victim

import (
	"context"
	"errors"
)

// Serve requires Linux.
func Serve(func() error) error { return errors.ErrUnsupported }

// Process has no values on this system.
type Process struct{}

// Start requires Linux.
func Start(context.Context, string, string) (*Process, error) { return nil, errors.ErrUnsupported }

// Run requires Linux.
func (*Process) Run(Ending) (End, error) { return End{}, errors.ErrUnsupported }
