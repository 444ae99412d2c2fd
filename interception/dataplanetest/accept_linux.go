// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"crypto/rand"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/meshcni/meshcni/internal/originaldst"
)

// answerWithin limits waits that only a broken harness or a foreign listener would not end.
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

// serve reads a connection's nonce and reports the arrival. A connection without a nonce is not a
// probe's. A connection that stays is closed by its probe.
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
	// The answer is sent before the sender learns of the arrival; the sender sees whether it
	// arrives.
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

// addrPort returns a TCP connection's address.
func addrPort(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort()
	}
	return netip.AddrPort{}
}

// nonce travels through a probe's connection, so that the accepting side can identify the probe.
type nonce [16]byte

// arrival is what a listener knows of a probe, or why it knows too little.
type arrival struct {
	Observation
	err  error
	kept *net.TCPConn // the connection, when it was expected to stay
}

// mailbox passes arrivals from the listeners to the probes that wait for them.
type mailbox struct {
	mu      sync.Mutex
	waiting map[nonce]chan arrival
	staying map[nonce]bool // expected connections that stay open
}

func newMailbox() *mailbox {
	return &mailbox{waiting: map[nonce]chan arrival{}, staying: map[nonce]bool{}}
}

// expect opens a slot for one arrival.
func (m *mailbox) expect() (nonce, <-chan arrival) {
	var n nonce
	_, _ = rand.Read(n[:]) // never fails (crypto/rand)
	slot := make(chan arrival, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting[n] = slot
	return n, slot
}

// stay keeps the connection with this nonce open.
func (m *mailbox) stay(n nonce) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.staying[n] = true
}

// stays reports whether a connection is to be kept.
func (m *mailbox) stays(n nonce) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.staying[n]
}

// deliver fills the slot. Only the first arrival counts, and only if a probe waits for it.
func (m *mailbox) deliver(n nonce, a arrival) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slot, expected := m.waiting[n]; expected {
		slot <- a
		delete(m.waiting, n)
	}
}

// forget closes a slot that may not have been filled.
func (m *mailbox) forget(n nonce) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, n)
	delete(m.staying, n)
}
