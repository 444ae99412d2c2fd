// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

// calmMonitor is for Linux alone.
func calmMonitor() {}
