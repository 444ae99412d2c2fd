// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package podnetns

import (
	"context"
	"fmt"
	"runtime"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
)

func supported() error {
	return fmt.Errorf("network namespaces on %s: %w", runtime.GOOS, interception.ErrUnsupported)
}

func (f *Finder) find(context.Context, Pod, bool) (*Found, error) { return nil, supported() }

func (r *Records) present(journal.Record) bool { return false }
