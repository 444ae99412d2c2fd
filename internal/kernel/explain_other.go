// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kernel

// Explain does nothing: only Linux has netlink.
func Explain() {}
