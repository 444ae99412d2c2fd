// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package zds

import (
	"net"
	"os"

	"github.com/meshcni/meshcni/interception"
)

func carriesMore(int) bool { return false }

func send(*net.UnixConn, []byte, *os.File) error { return interception.ErrUnsupported }
