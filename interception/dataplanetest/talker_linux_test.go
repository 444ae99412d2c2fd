// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// routedPort is where the server takes packets.
const routedPort = 9000

// protocols are those in which client and server talk.
func protocols() []interception.Protocol {
	return []interception.Protocol{interception.ProtocolUDP, interception.ProtocolTCP, trace.ICMP}
}

// talker has raw sockets in a namespace, which see all that is delivered there, and at the server
// the sockets of its ports.
type talker struct {
	r         *router
	name      string
	taps      map[interception.Protocol]int
	datagrams map[netip.Addr]int
	listeners []int
}

func newTalker(r *router, name string) *talker {
	r.t.Helper()
	k := &talker{r: r, name: name, taps: map[interception.Protocol]int{}, datagrams: map[netip.Addr]int{}}
	for _, protocol := range protocols() {
		number := int(protocol)
		if protocol == trace.ICMP && r.family == interception.IPv6 {
			number = unix.IPPROTO_ICMPV6
		}
		k.taps[protocol] = r.bound(name, unix.SOCK_RAW, number, netip.AddrPort{})
		if r.family == interception.IPv6 {
			r.must(unix.SetsockoptInt(k.taps[protocol], unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1))
		}
	}
	return k
}

// listen opens the sockets of an address.
func (k *talker) listen(at netip.AddrPort) {
	k.r.t.Helper()
	k.datagrams[at.Addr()] = k.r.bound(k.name, unix.SOCK_DGRAM, 0, at)
	listener := k.r.bound(k.name, unix.SOCK_STREAM, 0, at)
	k.r.must(unix.Listen(listener, 1024))
	k.listeners = append(k.listeners, listener)
}

// bound returns a socket in a namespace that lasts as long as the test, and has an address if that
// is valid.
func (r *router) bound(name string, kind, protocol int, at netip.AddrPort) int {
	r.t.Helper()
	socket := r.open(name, kind, protocol, at)
	r.t.Cleanup(func() { _ = unix.Close(socket) })
	return socket
}

// open returns a socket in a namespace, which has an address if that is valid.
func (r *router) open(name string, kind, protocol int, at netip.AddrPort) (socket int) {
	r.t.Helper()
	family := unix.AF_INET
	if r.family == interception.IPv6 {
		family = unix.AF_INET6
	}
	r.must(r.spaces[name].Do(func() (err error) {
		socket, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
		return err
	}))
	if at.IsValid() {
		r.must(unix.Bind(socket, sockaddr(at)))
	}
	return socket
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
}

// open begins a connection or sends a first packet, and returns the socket. That the packet is lost
// is for the receiver to notice.
func (k *talker) open(protocol interception.Protocol, src, dst netip.AddrPort) (socket int) {
	k.r.t.Helper()
	switch protocol {
	case interception.AnyProtocol: // is not sent
	case interception.ProtocolTCP:
		socket = k.r.open(k.name, unix.SOCK_STREAM, 0, src)
		k.r.must(reset(socket))
		_ = unix.Connect(socket, sockaddr(dst))
	case interception.ProtocolUDP:
		socket = k.r.open(k.name, unix.SOCK_DGRAM, 0, src)
		_ = unix.Sendto(socket, []byte{1}, 0, sockaddr(dst))
	case trace.ICMP:
		number, request := unix.IPPROTO_ICMP, []byte{8, 0, 0, 0, 0, 0, 0, 1}
		if dst.Addr().Is6() {
			number, request[0] = unix.IPPROTO_ICMPV6, 128
		}
		binary.BigEndian.PutUint16(request[4:], src.Port())
		if dst.Addr().Is4() { // for IPv6 the kernel does so
			binary.BigEndian.PutUint16(request[2:], ^(uint16(request[0])<<8 + src.Port() + 1))
		}
		socket = k.r.open(k.name, unix.SOCK_RAW, number, netip.AddrPortFrom(src.Addr(), 0))
		_ = unix.Sendto(socket, request, 0, sockaddr(netip.AddrPortFrom(dst.Addr(), 0)))
	}
	return socket
}

// reset has a connection end by a reset, so that nothing of it stays.
func reset(socket int) error {
	return unix.SetsockoptLinger(socket, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// established reports whether a socket has its connection.
func established(socket int) bool {
	info, err := unix.GetsockoptTCPInfo(socket, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && info.State == 1 // TCP_ESTABLISHED
}

// hangUp ends the connections that were accepted.
func (k *talker) hangUp() {
	for _, listener := range k.listeners {
		for {
			socket, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
			if err != nil {
				break
			}
			_ = errors.Join(reset(socket), unix.Close(socket))
		}
	}
}

// sighting is a packet that was delivered. Of ICMP, the port of the end that asks is the
// identifier, and the other one is 0, as in package trace.
type sighting struct {
	src, dst netip.AddrPort
	flags    interception.TCPFlag
}

// String returns "10.1.0.2:20001 > 10.3.0.2:9000", with the flags of TCP.
func (s sighting) String() string { return fmt.Sprintf("%s > %s %s", s.src, s.dst, s.flags) }

// sightings returns what was delivered of a protocol since the last call, between the client's last
// port and the server's.
func (k *talker) sightings(protocol interception.Protocol) (all []sighting) {
	data, control := make([]byte, 2048), make([]byte, 256)
	for {
		n, controls, _, from, err := unix.Recvmsg(k.taps[protocol], data, control, 0)
		if err != nil {
			return all
		}
		s, ok := parse(protocol, data[:n], control[:controls], from)
		asks := s.src.Port() == k.r.port && s.dst.Port() == farPort(protocol)
		answers := s.dst.Port() == k.r.port && s.src.Port() == farPort(protocol)
		if ok && (asks || answers) && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
}

// farPort is the port of the server.
func farPort(protocol interception.Protocol) uint16 {
	if protocol == trace.ICMP {
		return 0
	}
	return routedPort
}

// parse reads what a raw socket has received: for IPv4 with the header (raw(7)), for IPv6 without
// (RFC 3542).
func parse(protocol interception.Protocol, data, control []byte, from unix.Sockaddr) (s sighting, ok bool) {
	var src, dst netip.Addr
	switch from := from.(type) {
	case *unix.SockaddrInet4:
		if len(data) < 20 {
			return s, false
		}
		src, dst = netip.AddrFrom4([4]byte(data[12:16])), netip.AddrFrom4([4]byte(data[16:20]))
		data = data[min(len(data), int(data[0]&15)*4):]
	case *unix.SockaddrInet6:
		messages, err := unix.ParseSocketControlMessage(control)
		if err != nil || len(messages) == 0 || len(messages[0].Data) < 16 {
			return s, false
		}
		src, dst = netip.AddrFrom16(from.Addr), netip.AddrFrom16([16]byte(messages[0].Data))
	}
	if len(data) < 8 {
		return s, false
	}
	near, far := binary.BigEndian.Uint16(data), binary.BigEndian.Uint16(data[2:])
	switch {
	case protocol == interception.ProtocolTCP && len(data) >= 14:
		s.flags = interception.TCPFlag(data[13])
	case protocol == trace.ICMP:
		near, far = binary.BigEndian.Uint16(data[4:]), 0
		switch data[0] {
		case 8, 128:
		case 0, 129:
			near, far = far, near
		default:
			return s, false // an error, or a neighbour
		}
	}
	s.src, s.dst = netip.AddrPortFrom(src, near), netip.AddrPortFrom(dst, far)
	return s, true
}
