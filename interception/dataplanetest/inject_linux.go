// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// inject sends a packet from a raw socket (raw(7)), which has no port and no connection.
func (n *network) inject(packet trace.Packet) (src netip.AddrPort, err error) {
	probe, from, protocol := probeOf(packet), n.pod, unix.IPPROTO_TCP
	if probe.From == Elsewhere {
		from = n.elsewhere
		probe.Mark, probe.Transparent = toPod, true
	}
	if packet.Protocol == interception.ProtocolUDP {
		protocol = unix.IPPROTO_UDP
	}
	fd, err := from.socketOf(probe, unix.SOCK_RAW, protocol)
	if err != nil {
		return src, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if err := aim(fd, probe); err != nil {
		return src, err
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		return src, err
	}
	src = netip.AddrPortFrom(sender(local).Addr(), packet.Src.Port())
	if src.Port() == 0 {
		src = netip.AddrPortFrom(src.Addr(), trace.EphemeralPort)
	}
	// A rule that stops the packet here causes an error; the missing arrival shows that as well.
	_ = unix.Send(fd, segment(packet, src), 0)
	return src, nil
}

// aim sets the mark, source and destination of a raw socket.
func aim(fd int, p Probe) error {
	if err := setMark(fd, p.Mark); err != nil {
		return err
	}
	if p.Transparent {
		if err := setTransparent(fd, p.Dst.Addr().Is4()); err != nil {
			return fmt.Errorf("allow any source address: %w", err)
		}
	}
	if p.Src.IsValid() {
		if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(p.Src, 0))); err != nil {
			return fmt.Errorf("bind to Src %s: %w", p.Src, err)
		}
	}
	return unix.Connect(fd, sockaddr(netip.AddrPortFrom(p.Dst.Addr(), 0)))
}

// segment returns the packet's header of TCP (RFC 9293 section 3.1) or UDP (RFC 768), without
// payload.
func segment(packet trace.Packet, src netip.AddrPort) []byte {
	protocol, sum := byte(unix.IPPROTO_UDP), 6
	header := make([]byte, 8)
	binary.BigEndian.PutUint16(header[4:], uint16(len(header)))
	if packet.Protocol == interception.ProtocolTCP {
		protocol, sum = unix.IPPROTO_TCP, 16
		header = make([]byte, 20)
		binary.BigEndian.PutUint32(header[4:], 1) // sequence
		header[12] = 5 << 4                       // five words
		header[13] = byte(packet.Flags)
		if packet.Flags == 0 {
			header[13] = byte(interception.FlagSYN)
		}
		binary.BigEndian.PutUint16(header[14:], 0xffff) // window
	}
	binary.BigEndian.PutUint16(header, src.Port())
	binary.BigEndian.PutUint16(header[2:], packet.Dst.Port())
	rest := []byte{0, protocol, 0, byte(len(header))}
	binary.BigEndian.PutUint16(header[sum:], checksum(src.Addr().AsSlice(), packet.Dst.Addr().AsSlice(), rest, header))
	return header
}

// checksum returns the Internet checksum (RFC 1071) over parts of even length.
func checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, part := range parts {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
