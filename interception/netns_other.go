// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package interception

import (
	"fmt"
	"os"
	"runtime"
)

func openReadOnly(path string) (*os.File, error) { return nil, noNetns(path) }

func verifiedNetns(file *os.File) (*Netns, error) { return nil, noNetns(file.Name()) }

func netnsIDAt(path string) (NetnsID, error) { return NetnsID{}, noNetns(path) }

func noNetns(path string) error {
	return fmt.Errorf("%s: network namespaces on %s: %w", path, runtime.GOOS, ErrUnsupported)
}
