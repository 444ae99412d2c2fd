// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package podnetns

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
)

func supported() error {
	return fmt.Errorf("network namespaces on %s: %w", runtime.GOOS, interception.ErrUnsupported)
}

func (f *Finder) find(context.Context, Pod, bool) (*Found, error) { return nil, supported() }

func (f *Finder) findAll(_ context.Context, pods []Pod) []Finding {
	findings := make([]Finding, len(pods))
	for i := range findings {
		findings[i].Err = supported()
	}
	return findings
}

func (f *Finder) verify(_ Pod, file *os.File, _ interception.NetnsOptions) (*interception.Netns, error) {
	_ = file.Close() // it may be closed already, or nil
	return nil, supported()
}

func (r *Records) present(journal.Record) bool { return false }
