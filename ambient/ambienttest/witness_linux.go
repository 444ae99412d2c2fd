// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// Witness sees from outside what a proxy does in one pod's network namespace, whatever program the
// proxy is: its listeners, and the connections that it opens by sockets with its mark.
type Witness struct {
	namespace *interception.Netns
	numbers   ambient.Numbers

	mu     sync.Mutex
	socket int
	seen   map[string]bool // the connections
	counts int             // connections and queries
}

// NewWitness begins to count. It takes the rights to enter the namespace, which must stay open, and
// CAP_NET_RAW there. The caller must close the witness.
func NewWitness(in *interception.Netns, n ambient.Numbers) (*Witness, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	w := &Witness{namespace: in, numbers: n, seen: map[string]bool{}}
	err := namespace.Run(in.File(), func() (err error) {
		w.socket, err = listenToMark(n.ProxyMark)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch the packets of the proxy in %s: %w", in, err)
	}
	return w, nil
}

// Close ends the witness.
func (w *Witness) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return unix.Close(w.socket)
}

// Listening is [Listening] in the witness's namespace.
func (w *Witness) Listening() (bool, error) { return Listening(w.namespace, w.numbers) }

// Relayed returns how many connections the proxy has begun to open so far, also to destinations
// that have refused, and how many queries it has sent on. A connection that the application has
// seen is counted: the kernel hands its first packet to the witness before it sends it.
func (w *Witness) Relayed() (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for packet := make([]byte, packetHead); ; {
		n, _, err := unix.Recvfrom(w.socket, packet, 0)
		if errors.Is(err, unix.EAGAIN) {
			return w.counts, w.lost()
		}
		if err != nil {
			return 0, fmt.Errorf("read the packets of the proxy in %s: %w", w.namespace, err)
		}
		w.count(packet[:n])
	}
}

// lost returns an error if the kernel had no room for a packet.
func (w *Witness) lost() error {
	statistics, err := unix.GetsockoptTpacketStats(w.socket, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && statistics.Drops > 0 {
		err = fmt.Errorf("%d packets of the proxy were lost in %s: ask more often", statistics.Drops, w.namespace)
	}
	return err
}

// count counts a packet that begins a connection, once, or is a query to a resolver.
func (w *Witness) count(packet []byte) {
	begins, is := beginningOf(packet)
	if !is || w.seen[begins] {
		return
	}
	if begins != "" {
		w.seen[begins] = true
	}
	w.counts++
}

// packetHead is as much of a packet as a witness reads.
const packetHead = 128

// beginningOf returns what all copies of the first packet of a TCP connection have in common:
// addresses, ports and sequence number. It is empty for a query, which is a datagram to the port of
// resolvers. It reports whether the packet is one of these.
func beginningOf(packet []byte) (string, bool) {
	const ipv6Head, tcpFlags, tcpHead, udpHead, resolver = 40, 13, 20, 8, 53
	var protocol byte
	var addresses, transport []byte
	switch {
	case len(packet) >= ipv6Head && packet[0]>>4 == 6:
		protocol, addresses, transport = packet[6], packet[8:ipv6Head], packet[ipv6Head:]
	case len(packet) >= 20 && packet[0]>>4 == 4 && len(packet) >= int(packet[0]&15)*4:
		protocol, addresses, transport = packet[9], packet[12:20], packet[int(packet[0]&15)*4:]
	}
	switch {
	case protocol == unix.IPPROTO_TCP && len(transport) >= tcpHead:
		const syn, ack = 0x02, 0x10
		return string(slices.Concat(addresses, transport[:8])), transport[tcpFlags]&(syn|ack) == syn
	case protocol == unix.IPPROTO_UDP && len(transport) >= udpHead:
		return "", binary.BigEndian.Uint16(transport[2:]) == resolver
	}
	return "", false
}

// listenToMark opens a socket that gets the packets with a mark that leave the thread's namespace
// or its sockets (packet(7)).
func listenToMark(mark interception.MarkBits) (int, error) {
	// Nothing arrives before the socket is bound, so nothing passes its filter by.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a packet socket: %w (it takes CAP_NET_RAW)", err)
	}
	const packetType, packetMark = 0xfffff000 + 4, 0xfffff000 + 20 // linux/filter.h: SKF_AD_OFF with SKF_AD_PKTTYPE and SKF_AD_MARK
	const load, and, equal, end = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_ALU | unix.BPF_AND | unix.BPF_K,
		unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: packetType},
		{Code: equal, K: unix.PACKET_OUTGOING, Jf: 4},
		{Code: load, K: packetMark},
		{Code: and, K: uint32(mark.Mask)},
		{Code: equal, K: uint32(mark.Value), Jf: 1},
		{Code: end, K: packetHead},
		{Code: end},
	}
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})}))
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
