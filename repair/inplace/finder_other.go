// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package inplace

import (
	"context"
	"fmt"
	"runtime"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/repair"
)

func supported() error {
	return fmt.Errorf("network namespaces on %s: %w", runtime.GOOS, interception.ErrUnsupported)
}

func (f *Finder) find(context.Context, repair.Pod, bool) (*Found, error) { return nil, supported() }

func (f *Finder) present(journal.Record) bool { return false }
