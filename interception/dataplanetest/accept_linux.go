// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/originaldst"
)

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
	original, err := originaldst.Of(connection)
	e.mail.deliver(from, arrival{err: err, Observation: Observation{
		Verdict:     Accepted,
		At:          e.place,
		Port:        port,
		LocalAddr:   addrPort(connection.LocalAddr()),
		OriginalDst: original,
		Peer:        addrPort(connection.RemoteAddr()),
	}})
}

// addrPort is a TCP connection's address.
func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
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
		e.mail.deliver(nonce(datagram[:n]), arrival{Observation: Observation{
			Verdict:   Accepted,
			At:        e.place,
			Port:      port,
			LocalAddr: netip.AddrPortFrom(destination(control[:nControl]), port),
			Peer:      peer,
		}})
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
