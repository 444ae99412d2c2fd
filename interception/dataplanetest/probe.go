// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"cmp"
	"fmt"
	"net/netip"
)

// Place is one of the namespaces.
type Place int

// The places.
const (
	// InPod is the pod's namespace.
	InPod Place = iota
	// Elsewhere is everything outside the pod.
	Elsewhere
	// InMachine is at a link of the pod ([PodOptions].MachineLink), like a virtual machine of the
	// pod.
	InMachine
)

// String returns the place in words.
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

// String returns the protocol's name.
func (p Protocol) String() string {
	if p == UDP {
		return "udp"
	}
	return "tcp"
}

// Probe is one connection, or for UDP one datagram. Dst is required; the zero values of the other
// fields are the defaults: TCP, from a socket of root in the pod.
type Probe struct {
	// From is where the connecting socket is.
	From Place
	// UID and GID are the owner of a socket in the pod, as matched by "meta skuid" and "meta skgid"
	// of nft(8). For other sockets they must be 0.
	UID, GID uint32
	// Mark is the mark of the packets from a socket in the pod (socket(7), SO_MARK).
	Mark uint32
	// Transparent lets a socket in the pod have an address that is not the pod's (ip(7),
	// IP_TRANSPARENT), like a proxy that uses its client's address.
	Transparent bool
	// Protocol is TCP or UDP.
	Protocol Protocol
	// Src is the address that the socket is bound to first. In the pod it has to be an address of
	// the pod ([Pod.AddAddress]) unless the socket is Transparent; elsewhere it may be any. With
	// the zero value the kernel chooses: elsewhere 192.0.2.1 or 2001:db8::1, in the machine the
	// machine's address.
	Src netip.Addr
	// Dst is where the socket connects to. From elsewhere it has to be an address of eth0 in the
	// pod.
	Dst netip.AddrPort
}

// String returns the probe in one line.
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

// validate rejects obvious mistakes, with the field's name.
func (p Probe) validate() error {
	switch {
	case p.From != InPod && p.From != Elsewhere && p.From != InMachine:
		return fmt.Errorf("%w: From is %d, which is not a place", ErrProbe, p.From)
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
	// Refused: the sender got a reset or an ICMP error, or had no route.
	Refused
	// Dropped: no socket got it, and the sender was not informed.
	Dropped
)

// String returns the verdict in words.
func (v Verdict) String() string {
	names := map[Verdict]string{Accepted: "accepted", Refused: "refused", Dropped: "dropped"}
	return cmp.Or(names[v], fmt.Sprintf("Verdict(%d)", int(v)))
}

// Observation is the fate of a probe. Values are comparable with ==.
type Observation struct {
	// Verdict determines which other fields have a meaning.
	Verdict Verdict
	// At is where the accepting listener is.
	At Place
	// Port is the port that the accepting listener listens on.
	Port uint16
	// LocalAddr is the destination as the accepting socket sees it: after a redirect, the new one.
	LocalAddr netip.AddrPort
	// OriginalDst is the destination before address translation, as a proxy reads it from
	// SO_ORIGINAL_DST or IP6T_SO_ORIGINAL_DST. It is zero if the kernel does not track the
	// connection (no rule in the namespace needs conntrack) and for UDP, for which the kernel does
	// not support the option.
	OriginalDst netip.AddrPort
	// Peer is the sender as the accepting socket sees it.
	Peer netip.AddrPort
	// Answered reports whether the accepting socket's answer reached the sender.
	Answered bool
	// Err is the error that a refused sender got, as a syscall.Errno: ECONNREFUSED for a reset,
	// EHOSTUNREACH, ENETUNREACH, EACCES...
	Err error
}

// String returns the observation in one line.
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
