// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package footprint

import "runtime/debug"

// Trim returns unused memory to the system: free parts of the heap.
func Trim() error {
	debug.FreeOSMemory()
	return nil
}
