// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// datagramSocket is a listening UDP socket.
type datagramSocket struct {
	place Place
	port  uint16
	mail  *mailbox
	conn  *net.UDPConn
	raw   syscall.RawConn

	taking sync.Mutex // held while a datagram is read from the kernel and put into the mailbox
}

// listenUDP opens a socket that receives each datagram's destination (ip(7), IP_PKTINFO; ipv6(7),
// IPV6_RECVPKTINFO).
func (e *endpoint) listenUDP(port uint16, family string) (*datagramSocket, error) {
	conn, err := net.ListenUDP("udp"+family, &net.UDPAddr{Port: int(port)})
	if err != nil {
		return nil, err
	}
	s := &datagramSocket{place: e.place, port: port, mail: e.mail, conn: conn}
	if s.raw, err = conn.SyscallConn(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	level, option := unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	if family == "4" {
		level, option = unix.IPPROTO_IP, unix.IP_PKTINFO
	}
	var answer error
	err = s.raw.Control(func(fd uintptr) {
		answer = errors.Join(unix.SetsockoptInt(int(fd), level, option, 1), e.prepare(int(fd), port, family))
	})
	if err = errors.Join(err, answer); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return s, nil
}

// serve reads datagrams until the socket is closed.
func (s *datagramSocket) serve() {
	_ = s.raw.Read(func(fd uintptr) (done bool) {
		s.take(int(fd))
		return false
	})
}

// drain reads what has arrived, without waiting for the serving goroutine. A closed socket has
// nothing.
func (s *datagramSocket) drain() {
	_ = s.raw.Control(func(fd uintptr) { s.take(int(fd)) })
}

// take reports the datagrams that the kernel holds.
func (s *datagramSocket) take(fd int) {
	s.taking.Lock()
	defer s.taking.Unlock()
	datagram, control := make([]byte, 64), make([]byte, 128)
	for {
		n, nControl, _, from, err := unix.Recvmsg(fd, datagram, control, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return // nothing is left
		case n != len(nonce{}):
			continue // not a probe
		}
		to := destination(control[:nControl])
		// The answer is sent before the sender learns of the arrival; the sender sees whether it
		// arrives.
		_ = unix.Sendmsg(fd, datagram[:n], source(to), from, unix.MSG_DONTWAIT)
		s.mail.deliver(nonce(datagram[:n]), arrival{Observation: Observation{
			Verdict:   Accepted,
			At:        s.place,
			Port:      s.port,
			LocalAddr: netip.AddrPortFrom(to, s.port),
			Peer:      sender(from),
		}})
	}
}

// source returns the control message that sends a datagram from an address.
func source(a netip.Addr) []byte {
	if a.Is4() {
		return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: a.As4()})
	}
	return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a.As16()})
}

// sender returns a datagram's sender.
func sender(from unix.Sockaddr) netip.AddrPort {
	switch from := from.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(from.Addr), uint16(from.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(from.Addr), uint16(from.Port))
	}
	return netip.AddrPort{}
}

// destination returns a datagram's destination, from its control messages.
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
