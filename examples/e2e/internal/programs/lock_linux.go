// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"
	"os"
	"syscall"
)

// lock waits for the lock with this name and takes it. The kernel releases it when this process
// ends.
func lock(name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { _ = file.Close() }, nil
}
