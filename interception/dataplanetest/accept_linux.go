// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// soOriginalDst is SO_ORIGINAL_DST (linux/netfilter_ipv4.h) and IP6T_SO_ORIGINAL_DST (linux/netfilter_ipv6/ip6_tables.h).
const soOriginalDst = 80

// answerWithin bounds the waits that only a broken harness or a stranger's listener would not end.
const answerWithin = 10 * time.Second

// accept serves a TCP listener until it is closed.
func (e *endpoint) accept(listener *net.TCPListener, port uint16) {
	for {
		connection, err := listener.AcceptTCP()
		if err != nil {
			return // closed
		}
		go e.serve(connection, port)
	}
}

// serve reads whose connection it is, and reports it. A connection that says nothing is no probe's.
func (e *endpoint) serve(connection *net.TCPConn, port uint16) {
	defer func() { _ = connection.Close() }() // nothing is left to be written
	var from nonce
	if connection.SetReadDeadline(time.Now().Add(answerWithin)) != nil {
		return
	}
	if _, err := io.ReadFull(connection, from[:]); err != nil {
		return
	}
	local := addrPort(connection.LocalAddr())
	e.mail.deliver(from, Observation{
		Verdict:     Accepted,
		At:          e.place,
		Port:        port,
		LocalAddr:   local,
		OriginalDst: originalDst(connection, local.Addr().Is4()),
		Peer:        addrPort(connection.RemoteAddr()),
	})
}

// addrPort is a TCP connection's address.
func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}

// originalDst asks conntrack for a connection's destination before address translation. No record is no address.
func originalDst(connection *net.TCPConn, is4 bool) netip.AddrPort {
	raw, err := connection.SyscallConn()
	if err != nil {
		return netip.AddrPort{}
	}
	var original netip.AddrPort
	_ = raw.Control(func(fd uintptr) {
		if is4 {
			// The answer is a struct sockaddr_in: family, port, address. The 20 bytes of this call hold it.
			if answer, err := unix.GetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IP, soOriginalDst); err == nil {
				b := answer.Multiaddr
				original = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4]))
			}
			return
		}
		// A struct sockaddr_in6, with which the answer of this call begins.
		if answer, err := unix.GetsockoptIPv6MTUInfo(int(fd), unix.IPPROTO_IPV6, soOriginalDst); err == nil {
			var port [2]byte
			binary.NativeEndian.PutUint16(port[:], answer.Addr.Port)
			original = netip.AddrPortFrom(netip.AddrFrom16(answer.Addr.Addr), binary.BigEndian.Uint16(port[:]))
		}
	})
	return original
}

// receive serves a UDP socket until it is closed.
func (e *endpoint) receive(socket *net.UDPConn, port uint16) {
	datagram, control := make([]byte, 64), make([]byte, 128)
	for {
		n, nControl, _, peer, err := socket.ReadMsgUDPAddrPort(datagram, control)
		if err != nil {
			return // closed
		}
		if n != len(nonce{}) {
			continue
		}
		e.mail.deliver(nonce(datagram[:n]), Observation{
			Verdict:   Accepted,
			At:        e.place,
			Port:      port,
			LocalAddr: netip.AddrPortFrom(destination(control[:nControl]), port),
			Peer:      netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port()),
		})
	}
}

// destination is a datagram's, from its control messages.
func destination(control []byte) netip.Addr {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return netip.Addr{}
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			return netip.AddrFrom4([4]byte(m.Data[8:12])) // struct in_pktinfo, ipi_addr
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			return netip.AddrFrom16([16]byte(m.Data[:16])) // struct in6_pktinfo, ipi6_addr
		}
	}
	return netip.Addr{}
}
