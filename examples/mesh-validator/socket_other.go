// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"syscall"
)

// becomeTransparent refuses systems on which nothing captures traffic.
func (d *desk) becomeTransparent(string, string, syscall.RawConn) error {
	return fmt.Errorf("traffic is captured on Linux, and this is %s", runtime.GOOS)
}

func destination(net.Conn) netip.AddrPort { return netip.AddrPort{} }
