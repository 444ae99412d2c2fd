// SPDX-License-Identifier: Apache-2.0

package sandboxtest

import (
	"os"
	"testing"
)

// Descriptors counts this process's descriptors of the file at a path, such as that of a network
// namespace.
func Descriptors(t testing.TB, path string) (open int) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		opened, err := os.Stat("/proc/self/fd/" + entry.Name())
		if err == nil && os.SameFile(info, opened) { // another test may have closed it
			open++
		}
	}
	return open
}
