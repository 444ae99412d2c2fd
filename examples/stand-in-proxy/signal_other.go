// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import "syscall"

// loseListeners is no signal of this system.
const loseListeners = syscall.Signal(-1)
