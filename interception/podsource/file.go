// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"fmt"
	"io"
	"os"
)

// maxFile bounds a kubeconfig, and each file that it refers to.
const maxFile = 1 << 20

// readFile reads a kubeconfig, or a file that it refers to. Only root or this process's user may be
// able to write it: the API server that it names decides which pods are captured.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s has mode %s, and other users may write to it: forbid that (chmod go-w)", path, info.Mode())
	case !trustedOwner(info):
		return nil, fmt.Errorf("%s belongs to another user: give it to root (chown)", path)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return data, nil
}
