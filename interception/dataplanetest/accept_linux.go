// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"io"
	"net"
	"net/netip"
	"time"

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

// serve reads whose connection it is, and reports it. A connection that says nothing is no probe's. One that is to stay, its probe closes.
func (e *endpoint) serve(connection *net.TCPConn, port uint16) {
	stays := false
	defer func() {
		if !stays {
			_ = connection.Close() // nothing is left to be written
		}
	}()
	var from nonce
	if connection.SetReadDeadline(time.Now().Add(answerWithin)) != nil {
		return
	}
	if _, err := io.ReadFull(connection, from[:]); err != nil {
		return
	}
	original, err := originaldst.Of(connection)
	// The answer is on its way before the sender hears of the arrival. Whether it comes there, the sender sees.
	_, _ = connection.Write(from[:])
	a := arrival{err: err, Observation: Observation{
		Verdict:     Accepted,
		At:          e.place,
		Port:        port,
		LocalAddr:   addrPort(connection.LocalAddr()),
		OriginalDst: original,
		Peer:        addrPort(connection.RemoteAddr()),
	}}
	if stays = e.mail.stays(from); stays {
		a.kept = connection
	}
	e.mail.deliver(from, a)
}

// addrPort is a TCP connection's address.
func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}
