// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package footprint

import "runtime/debug"

// Trim gives back the memory that isn't in use: free parts of the heap.
func Trim() error {
	debug.FreeOSMemory()
	return nil
}
