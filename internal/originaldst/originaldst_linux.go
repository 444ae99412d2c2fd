// SPDX-License-Identifier: Apache-2.0

package originaldst

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Of returns the destination that the connection had at its start, from connection tracking:
// SO_ORIGINAL_DST (linux/netfilter_ipv4.h) for IPv4 and IP6T_SO_ORIGINAL_DST
// (linux/netfilter_ipv6/ip6_tables.h), which has the same number, for IPv6. It returns the zero
// AddrPort when the kernel has no record of the connection, for example where nothing in the
// namespace uses connection tracking. An IPv4 connection has to be accepted by an IPv4 socket: a
// dual-stack socket gets no answer.
func Of(conn *net.TCPConn) (netip.AddrPort, error) {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("ask for the original destination: %w", net.ErrClosed)
	}
	ask := of6
	if local.AddrPort().Addr().Is4() {
		ask = of4
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask for the original destination: %w", err)
	}
	var original netip.AddrPort
	var answer error
	err = raw.Control(func(fd uintptr) { original, answer = ask(int(fd)) })
	if errors.Is(answer, unix.ENOENT) || errors.Is(answer, unix.ENOPROTOOPT) {
		answer = nil // no record; the option does not exist while the module is not loaded
	}
	if err := errors.Join(err, answer); err != nil {
		return netip.AddrPort{}, fmt.Errorf("ask for the original destination: %w", err)
	}
	return original, nil
}

// of4 reads a struct sockaddr_in (family, port, address) into the 20 bytes that this call has room
// for.
func of4(fd int) (netip.AddrPort, error) {
	answer, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, err
	}
	b := answer.Multiaddr
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4])), nil
}

// of6 reads a struct sockaddr_in6, with which the answer of this call begins.
func of6(fd int) (netip.AddrPort, error) {
	answer, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, err
	}
	var port [2]byte
	binary.NativeEndian.PutUint16(port[:], answer.Addr.Port) // it is in network byte order
	return netip.AddrPortFrom(netip.AddrFrom16(answer.Addr.Addr), binary.BigEndian.Uint16(port[:])), nil
}
