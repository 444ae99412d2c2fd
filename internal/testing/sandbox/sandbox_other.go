// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

func enter(context.Context) (Info, error) {
	return Info{}, fmt.Errorf("namespaces on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
