// SPDX-License-Identifier: Apache-2.0

package markprobe

import (
	"encoding/binary"
	"net/netip"
)

// segment is a TCP segment without data to port 0, where nothing can listen (RFC 9293).
type segment struct {
	from, to netip.Addr // of one family
	port     uint16     // the source's
	sequence uint32
}

const (
	ethernetHead = 14
	ipv4Head     = 20
	ipv6Head     = 40
	tcpHead      = 20

	sequenceAt = 4 // where the TCP header has the sequence number

	rst byte = 0x04
	syn byte = 0x02
	tcp byte = 6 // the number of the protocol

	hops byte = 64
)

// frame returns the segment in an Ethernet frame to all stations.
func (s segment) frame(flags byte) []byte {
	frame := make([]byte, ethernetHead, ethernetHead+ipv6Head+tcpHead)
	for i := range 6 {
		frame[i] = 0xff
	}
	packet := s.ipv4()
	binary.BigEndian.PutUint16(frame[12:], 0x0800)
	if s.from.Is6() {
		packet = s.ipv6()
		binary.BigEndian.PutUint16(frame[12:], 0x86dd)
	}
	return append(append(frame, packet...), s.tcp(flags)...)
}

// ipv4 returns the IPv4 header (RFC 791).
func (s segment) ipv4() []byte {
	const ihl, dontFragment = ipv4Head / 4, 0x40
	head := append([]byte{4<<4 | ihl, 0, 0, ipv4Head + tcpHead, 0, 0, dontFragment, 0, hops, tcp, 0, 0}, s.addresses()...)
	binary.BigEndian.PutUint16(head[10:], checksum(head))
	return head
}

// ipv6 returns the IPv6 header (RFC 8200).
func (s segment) ipv6() []byte {
	return append([]byte{6 << 4, 0, 0, 0, 0, tcpHead, tcp, hops}, s.addresses()...)
}

// tcp returns the TCP header (RFC 9293).
func (s segment) tcp(flags byte) []byte {
	head := make([]byte, tcpHead)
	binary.BigEndian.PutUint16(head, s.port)
	binary.BigEndian.PutUint32(head[sequenceAt:], s.sequence)
	head[12], head[13] = tcpHead/4<<4, flags
	binary.BigEndian.PutUint16(head[14:], 1<<10)
	pseudo := append(s.addresses(), 0, tcp, 0, tcpHead)
	binary.BigEndian.PutUint16(head[16:], checksum(append(pseudo, head...)))
	return head
}

func (s segment) addresses() []byte { return append(s.from.AsSlice(), s.to.AsSlice()...) }

// checksum returns the Internet checksum (RFC 1071) of data, whose length must be even.
func checksum(data []byte) uint16 {
	var sum uint32
	for ; len(data) > 0; data = data[2:] {
		sum += uint32(binary.BigEndian.Uint16(data))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
