// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Each UDP probe gets a new source port: conntrack remembers a UDP flow, and its translation, long
// after the probe is over.
const firstUDPPort, lastUDPPort = 20000, 60000

// newSocket opens the socket that sends a probe, bound to its source. It belongs to the probe's
// user: the kernel stores the file system ids of the creating thread in the socket
// (credentials(7)), and nft and iptables read them there.
func (e *endpoint) newSocket(p Probe) (*os.File, error) {
	kind := unix.SOCK_STREAM
	if p.Protocol == UDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := e.socketOf(p, kind, 0)
	if err != nil {
		return nil, err
	}
	if err := e.bind(fd, p); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "probe"), nil
}

// socketOf opens a socket of the probe's user, of the family of its destination.
func (e *endpoint) socketOf(p Probe, kind, protocol int) (fd int, err error) {
	domain := unix.AF_INET6
	if p.Dst.Addr().Is4() {
		domain = unix.AF_INET
	}
	err = e.namespace.Do(func() error {
		return asUser(owner{uid: int(p.UID), gid: int(p.GID)}, func() error {
			fd, err = unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("make socket: %w", err)
	}
	return fd, nil
}

// owner is the user and group of a socket, and the mark of a listener.
type owner struct {
	uid, gid int
	mark     uint32
}

// asUser runs f with other file system ids. The caller's goroutine is locked to its thread, and
// only this thread has the ids.
func asUser(o owner, f func() error) (err error) {
	for _, id := range []struct {
		kind string
		want int
		set  func(int) (int, error)
	}{{"group", o.gid, unix.SetfsgidRetGid}, {"user", o.uid, unix.SetfsuidRetUid}} {
		previous, err := id.set(id.want)
		if err != nil {
			return fmt.Errorf("become %s %d: %w", id.kind, id.want, err)
		}
		defer id.set(previous) //nolint:errcheck // back to the id this thread had: always allowed
		// The call does not report whether it worked; a second one, with an impossible id, returns
		// the present id (setfsuid(2)).
		if now, _ := id.set(-1); now != id.want {
			return fmt.Errorf("become %s %d: %w", id.kind, id.want, ErrNeedsSecondUID)
		}
	}
	return f()
}

// bind sets a socket's source address, and of a datagram's the port. TCP chooses the port when it
// connects, as it does for most programs: then the port is even as long as one is free, and where
// bind(2) chooses it, odd (inet_hash_connect and inet_csk_find_open_port of the kernel). The
// difference matters beside a proxy that binds to its client's address: with its client's port,
// too, its connection would be its client's own to conntrack, and both would fail.
func (e *endpoint) bind(fd int, p Probe) error {
	source := p.Src
	if !source.IsValid() {
		source = netip.IPv6Unspecified()
		if p.Dst.Addr().Is4() {
			source = netip.IPv4Unspecified()
		}
	}
	if err := setMark(fd, p.Mark); err != nil {
		return err
	}
	if p.Transparent || p.From == Elsewhere && p.Src.IsValid() {
		if err := setTransparent(fd, source.Is4()); err != nil {
			return fmt.Errorf("allow any source address: %w", err)
		}
	}
	var port uint16
	if p.Protocol == UDP {
		port = e.nextUDPPort()
	} else if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil { // IPv6, too
		return fmt.Errorf("leave the port to connect(2): %w", err)
	}
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(source, port))); err != nil {
		return fmt.Errorf("bind to Src %s: %w", source, err)
	}
	// A reset instead of TIME_WAIT: the end of a probe leaves no trace that the next one could
	// meet.
	return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// setMark sets the mark of a socket's packets.
func setMark(fd int, mark uint32) error {
	if mark == 0 {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		return fmt.Errorf("set Mark: %w", err)
	}
	return nil
}

// setTransparent allows a socket foreign addresses (ip(7), IP_TRANSPARENT).
func setTransparent(fd int, is4 bool) error {
	if is4 {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT, 1)
}

func (e *endpoint) nextUDPPort() uint16 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lastPort < firstUDPPort || e.lastPort >= lastUDPPort {
		e.lastPort = firstUDPPort - 1
	}
	e.lastPort++
	return e.lastPort
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
