// SPDX-License-Identifier: Apache-2.0

//go:build unix

package filesystem

import "syscall"

func makePipe(path string) error { return syscall.Mkfifo(path, 0o600) }
