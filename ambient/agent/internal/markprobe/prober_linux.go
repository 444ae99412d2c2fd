// SPDX-License-Identifier: Apache-2.0

package markprobe

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// Prober probes one network namespace. It is for one goroutine at a time.
type Prober struct {
	in  *interception.Netns
	out int // stays open: to close a packet socket takes the kernel some milliseconds
	// tracked is when a connection of a family was last seen to be tracked; true for IPv6.
	tracked map[bool]time.Time
}

// loopback is the index that lo has in each namespace (linux/net/loopback.h).
const loopback = 1

// Open returns a prober for a namespace, which must stay open as long as the prober is used. It
// takes CAP_NET_RAW there. The caller closes the prober.
func Open(in *interception.Netns) (*Prober, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	p := &Prober{in: in, tracked: map[bool]time.Time{}}
	if err := namespace.Run(in.File(), func() (err error) {
		p.out, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // it receives nothing
		return err
	}); err != nil {
		return nil, fmt.Errorf("open a packet socket in %s: %w (it takes CAP_NET_RAW)", in, err)
	}
	return p, nil
}

// Close ends the prober.
func (p *Prober) Close() error { return unix.Close(p.out) }

// patience is how long a packet may take. Over lo it takes some microseconds.
const patience = 100 * time.Millisecond

// Marked reports whether a packet that opens a TCP connection gets the mark. From must not be an
// address of the namespace, and to must be one outside of 127.0.0.0/8. The packet passes the hooks
// prerouting and input, whose rules may change the mark. The error may wrap [ErrUnseen] or
// [ErrUntracked].
func (p *Prober) Marked(from, to netip.Addr, mark interception.MarkBits) (marked bool, err error) {
	probe := segment{from: from, to: to, port: uint16(1 + rand.IntN(1<<16-1)), sequence: rand.Uint32()}
	err = namespace.Run(p.in.File(), func() error {
		in, err := receive(probe, mark)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(in) }()
		if err := p.send(probe, syn); err != nil {
			return err
		}
		marked, err = await(in)
		if err == nil && !marked {
			err = p.mustTrack(probe)
		}
		return errors.Join(err, p.send(probe, rst)) // the kernel forgets the connection
	})
	if err != nil {
		return false, fmt.Errorf("probe the mark of connections from %s in %s: %w", from, p.in, err)
	}
	return marked, nil
}

func (p *Prober) send(probe segment, flags byte) error {
	return unix.Sendto(p.out, probe.frame(flags), 0, &unix.SockaddrLinklayer{Ifindex: loopback})
}

// The lengths to which the kernel cuts the packet for its receiver say whether it has the mark.
const (
	lengthMarked   = 2
	lengthUnmarked = 1
)

// receive returns a socket that receives packets of the connection alone.
func receive(probe segment, mark interception.MarkBits) (in int, err error) {
	family, head := unix.AF_INET, ipv4Head
	if probe.from.Is6() {
		family, head = unix.AF_INET6, 0 // raw sockets get IPv6 packets without the IPv6 header
	}
	in, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err != nil {
		return -1, fmt.Errorf("open a raw socket: %w (it takes CAP_NET_RAW)", err)
	}
	const packetMark = 0xfffff000 + 20 // linux/filter.h: SKF_AD_OFF + SKF_AD_MARK
	const load, and, equal, end = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_ALU | unix.BPF_AND | unix.BPF_K,
		unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: uint32(head)},
		{Code: equal, K: uint32(probe.port) << 16, Jf: 6},
		{Code: load, K: uint32(head) + sequenceAt},
		{Code: equal, K: probe.sequence, Jf: 4},
		{Code: load, K: packetMark},
		{Code: and, K: uint32(mark.Mask)},
		{Code: equal, K: uint32(mark.Value), Jt: 2},
		{Code: end, K: lengthUnmarked},
		{Code: end},
		{Code: end, K: lengthMarked},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err = unix.SetsockoptSockFprog(in, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
	for err == nil { // what arrived before the filter was there may have filled the socket
		_, _, err = unix.Recvfrom(in, make([]byte, 1), 0)
	}
	if !errors.Is(err, unix.EAGAIN) {
		return -1, errors.Join(fmt.Errorf("attach a filter to a raw socket: %w", err), unix.Close(in))
	}
	return in, nil
}

// trackedFor is how long connections count as tracked after one was seen to be. On a node with many
// connections the list of them is long.
const trackedFor = 10 * time.Second

// mustTrack returns an error if the thread's namespace does not track the connection.
func (p *Prober) mustTrack(s segment) error {
	if time.Since(p.tracked[s.from.Is6()]) < trackedFor {
		return nil
	}
	family := netlink.InetFamily(unix.AF_INET)
	if s.from.Is6() {
		family = unix.AF_INET6
	}
	all, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
	for _, flow := range all {
		from, _ := netip.AddrFromSlice(flow.Forward.SrcIP) // the zero Addr is another one
		if from.Unmap() == s.from && flow.Forward.Protocol == tcp && flow.Forward.SrcPort == s.port && flow.Forward.DstPort == 0 {
			p.tracked[s.from.Is6()] = time.Now()
			return nil
		}
	}
	return cmp.Or(err, ErrUntracked)
}

// await receives the packet.
func await(in int) (marked bool, err error) {
	until, packet := time.Now().Add(patience), make([]byte, lengthMarked)
	for {
		n, _, err := unix.Recvfrom(in, packet, 0)
		switch {
		case err == nil:
			return n == lengthMarked, nil
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EAGAIN):
			return false, err
		case time.Now().After(until):
			return false, ErrUnseen
		default:
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(in), Events: unix.POLLIN}}, int(patience.Milliseconds()))
			if err != nil && !errors.Is(err, unix.EINTR) {
				return false, err
			}
		}
	}
}
