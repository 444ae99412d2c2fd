// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/originaldst"
)

// becomeTransparent lets a listener take connections to any address (ip(7), IP_TRANSPARENT), which
// TPROXY requires. It needs CAP_NET_ADMIN or CAP_NET_RAW. REDIRECT works without it.
func (d *desk) becomeTransparent(network, _ string, raw syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if strings.HasSuffix(network, "6") {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	return raw.Control(func(fd uintptr) {
		d.transparent = unix.SetsockoptInt(int(fd), level, option, 1) == nil
	})
}

// destination returns a connection's destination before any rule.
func destination(conn net.Conn) netip.AddrPort {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return netip.AddrPort{}
	}
	if to, err := originaldst.Of(tcp); err == nil && to.IsValid() {
		return to
	}
	// A *net.TCPAddr always has this form.
	local, _ := netip.ParseAddrPort(conn.LocalAddr().String())
	return local
}
