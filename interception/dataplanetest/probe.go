// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"net/netip"
)

// Place is one of the namespaces.
type Place int

// The places.
const (
	// InPod is the pod's namespace.
	InPod Place = iota
	// Elsewhere is everything outside of the pod.
	Elsewhere
	// InMachine is behind a link of the pod ([PodOptions].MachineLink), as a virtual machine of the
	// pod is.
	InMachine
)

// String is the place in words.
func (p Place) String() string {
	switch p {
	case Elsewhere:
		return "elsewhere"
	case InMachine:
		return "machine"
	case InPod:
	}
	return "pod"
}

// Protocol is a probe's transport protocol.
type Protocol int

// The protocols.
const (
	TCP Protocol = iota
	UDP
)

// String is the protocol's name.
func (p Protocol) String() string {
	if p == UDP {
		return "udp"
	}
	return "tcp"
}

// Probe is one connection, or for UDP one datagram. The zero value of everything but Dst is the
// default: TCP, from a socket of root's in the pod.
type Probe struct {
	// From is where the connecting socket is.
	From Place
	// UID and GID are the owner of a socket in the pod, as "meta skuid" and "meta skgid" of nft(8)
	// see it. For any other they have no meaning, and have to be 0.
	UID, GID uint32
	// Mark is the mark of what a socket in the pod sends (socket(7), SO_MARK).
	Mark uint32
	// Transparent lets a socket in the pod have an address that isn't the pod's (ip(7),
	// IP_TRANSPARENT), as a proxy does that speaks in its client's name.
	Transparent bool
	// Protocol is TCP or UDP.
	Protocol Protocol
	// Src is the address that the socket is bound to first. In the pod it has to be an address of
	// the pod's ([Pod.AddAddress]) unless the socket is Transparent; elsewhere it may be any. The
	// zero value leaves it to the kernel: elsewhere it then is 192.0.2.1 or 2001:db8::1. In the
	// machine it is that of the machine.
	Src netip.Addr
	// Dst is where the socket connects to. From elsewhere it has to be one of the addresses of eth0
	// in the pod.
	Dst netip.AddrPort
}

// String is the probe as one line.
func (p Probe) String() string {
	from := p.From.String()
	if p.From == InPod {
		from = fmt.Sprintf("%s (uid %d, gid %d)", from, p.UID, p.GID)
	}
	if p.Mark != 0 {
		from += fmt.Sprintf(" with mark 0x%x", p.Mark)
	}
	if p.Transparent {
		from += ", transparent,"
	}
	if p.Src.IsValid() {
		from += " at " + p.Src.String()
	}
	return fmt.Sprintf("%s from %s to %s", p.Protocol, from, p.Dst)
}

// validate refuses what could only be a slip, with the field's name.
func (p Probe) validate() error {
	switch {
	case p.From != InPod && p.From != Elsewhere && p.From != InMachine:
		return fmt.Errorf("%w: From is %d, which is no place", ErrProbe, p.From)
	case p.Protocol != TCP && p.Protocol != UDP:
		return fmt.Errorf("%w: Protocol is %d, which is neither TCP nor UDP", ErrProbe, p.Protocol)
	case p.From != InPod && (p.UID != 0 || p.GID != 0):
		return fmt.Errorf("%w: UID %d, GID %d: only sockets in the pod have an owner that matters", ErrProbe, p.UID, p.GID)
	case p.From != InPod && (p.Mark != 0 || p.Transparent):
		return fmt.Errorf("%w: Mark 0x%x, Transparent %t: only sockets in the pod have such", ErrProbe, p.Mark, p.Transparent)
	}
	return p.validateAddresses()
}

func (p Probe) validateAddresses() error {
	src, dst := p.Src, p.Dst.Addr()
	switch {
	case !p.Dst.IsValid() || p.Dst.Port() == 0:
		return fmt.Errorf("%w: Dst is %s; give an address and a port", ErrProbe, p.Dst)
	case dst.Zone() != "" || dst.Is4In6() || src.Zone() != "" || src.Is4In6():
		return fmt.Errorf("%w: Src %s or Dst %s has a zone or is IPv4 written as IPv6; give plain addresses", ErrProbe, src, p.Dst)
	case src.IsValid() && src.Is4() != dst.Is4():
		return fmt.Errorf("%w: Src %s and Dst %s are of different families", ErrProbe, src, p.Dst)
	}
	return nil
}

// Verdict is how a probe ended.
type Verdict int

// The verdicts.
const (
	// Accepted: a listener of the harness got the probe.
	Accepted Verdict = iota + 1
	// Refused: the sender was told no, by a reset, an ICMP error or the lack of a route.
	Refused
	// Dropped: nobody got it, and nobody told the sender.
	Dropped
)

// String is the verdict in words.
func (v Verdict) String() string {
	switch v {
	case Accepted:
		return "accepted"
	case Refused:
		return "refused"
	case Dropped:
		return "dropped"
	}
	return fmt.Sprintf("Verdict(%d)", int(v))
}

// Observation is what became of a probe. Values can be compared with ==.
type Observation struct {
	// Verdict says which of the other fields have a meaning.
	Verdict Verdict
	// At is where the accepting listener is.
	At Place
	// Port is the port that the accepting listener listens on.
	Port uint16
	// LocalAddr is the destination as the accepting socket sees it: after a redirect the new one.
	LocalAddr netip.AddrPort
	// OriginalDst is the destination before address translation, as a proxy asks for it:
	// SO_ORIGINAL_DST or IP6T_SO_ORIGINAL_DST. It is the zero value when the kernel has no record
	// of the connection (nothing in the namespace wants conntrack) and for UDP, for which the
	// kernel doesn't answer.
	OriginalDst netip.AddrPort
	// Peer is the sender as the accepting socket sees it.
	Peer netip.AddrPort
	// Answered says that what the accepting socket sent back reached the sender.
	Answered bool
	// Err is what a refused sender was told, as a syscall.Errno: ECONNREFUSED for a reset,
	// EHOSTUNREACH, ENETUNREACH, EACCES...
	Err error
}

// String is the observation as one line.
func (o Observation) String() string {
	switch o.Verdict {
	case Dropped:
	case Accepted:
		line := fmt.Sprintf("accepted in %s on port %d as %s, from %s", o.At, o.Port, o.LocalAddr, o.Peer)
		if o.OriginalDst.IsValid() {
			line += ", originally to " + o.OriginalDst.String()
		}
		if !o.Answered {
			line += ", but its answer was lost"
		}
		return line
	case Refused:
		return fmt.Sprintf("refused: %v", o.Err)
	}
	return o.Verdict.String()
}
