// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import "syscall"

// loseListeners is the signal by which the proxy loses the listeners of its pods.
const loseListeners = syscall.SIGUSR1
