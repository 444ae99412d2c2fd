// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package event

import (
	"net"
	"os"

	"github.com/meshcni/meshcni/interception"
)

func send(*net.UnixConn, []byte, *os.File) (int, error) { return 0, interception.ErrUnsupported }

func receive(*net.UnixConn, []byte) (int, []*os.File, bool, error) {
	return 0, nil, false, interception.ErrUnsupported
}
