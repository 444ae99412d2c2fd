// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package plugin

// calmMonitor is for Linux alone.
func calmMonitor() {}
