// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"net/netip"
)

// Action is what a rule does with the packets it matches. The interface is sealed, so that a switch
// over the actions of this package is complete. The tables that take an action are part of its type
// ([RawAction], [MangleAction], [NATAction], [FilterAction]): DROP in a nat table does not compile.
type Action interface {
	fmt.Stringer
	action()
}

// RawAction is an action that a raw table takes.
type RawAction interface {
	Action
	raw()
}

// MangleAction is an action that a mangle table takes.
type MangleAction interface {
	Action
	mangle()
}

// NATAction is an action that a nat table takes.
type NATAction interface {
	Action
	nat()
}

// FilterAction is an action that a filter table takes.
type FilterAction interface {
	Action
	filter()
}

// Accept ends the walk through this hook and table. The packet continues with the next table.
type Accept struct{}

// Return ends the walk through this chain, which continues after the jump that led here. In a chain
// that a hook leads to, that is the hook's next entry.
type Return struct{}

// Drop discards the packet silently. Nat tables do not take it: iptables refuses it there, because
// a nat table sees only the first packet of a connection.
type Drop struct{}

// RedirectTo sends the connection to a port of the namespace itself: to the address of the
// interface on which it arrived or, in Output, to the loopback address. The connection keeps its
// original destination (SO_ORIGINAL_DST). RedirectTo applies to TCP and UDP, in Prerouting and
// Output only (iptables-extensions(8), REDIRECT).
type RedirectTo struct {
	// Port is the local port. It must not be 0.
	Port Port
}

// DNATTo rewrites the connection's destination. It applies in Prerouting and Output.
type DNATTo struct {
	// Addr is the new destination, of the rule's family.
	Addr netip.Addr
	// Port is the new destination port; 0 keeps the old one. A port requires TCP or UDP.
	Port Port
}

// SNATTo rewrites the connection's source. It applies in Input and Postrouting.
type SNATTo struct {
	// Addr is the new source, of the rule's family.
	Addr netip.Addr
	// Port is the new source port; 0 lets the kernel choose. A port requires TCP or UDP.
	Port Port
	// Keep leaves the source as it is, and keeps later rules of all programs from rewriting it. Addr
	// and Port must be zero then, and the rule must be of one family. In iptables, where all
	// programs share a chain of nat, Accept does the same. In nf_tables each program has chains of
	// its own, and the first translation of a connection counts: there Keep translates the source to
	// itself.
	Keep bool
}

// TProxyTo hands the packet to a local socket that listens on Port with IP_TRANSPARENT, whatever
// the packet's destination. It also writes the packet's mark, by which policy routing then delivers
// the packet locally, and accepts it. It applies to TCP and UDP, in Prerouting only
// (Documentation/networking/tproxy.rst).
type TProxyTo struct {
	// Port is the local port. It must not be 0.
	Port Port
	// Mark is written to the packet.
	Mark MarkBits
}

// SetMark writes bits of the packet's mark and continues. In Output the kernel then routes the
// packet again.
type SetMark struct {
	// Mark is the value to write.
	Mark MarkBits
}

// SaveMark copies bits of the packet's mark to its connection and continues. nf_tables copies a
// part of the bits since Linux 6.13, and before only where the rule's match fixes them
// ([SaveMark.Fixed]).
type SaveMark struct {
	// Mask selects the bits to copy; 0 stands for all.
	Mask Mark
}

// RestoreMark copies bits of the connection's mark to the packet and continues. In Output the
// kernel then routes the packet again. What SaveMark says about nf_tables is true of it, too.
type RestoreMark struct {
	// Mask selects the bits to copy; 0 stands for all.
	Mask Mark
}

// SetConnMark writes bits of the connection's mark and continues.
type SetConnMark struct {
	// Mark is the value to write.
	Mark MarkBits
}

// SetZone makes connection tracking look up the packet in a separate zone, so that equal addresses
// and ports do not clash, and continues (iptables-extensions(8), CT).
type SetZone struct {
	// Zone is the zone's number; 0 is the default zone.
	Zone uint16
	// Direction limits the zone to the packets of one direction of a connection: those of the other
	// are looked up in the default zone. AnyDirection is for both. With DirectionOriginal,
	// connections with equal addresses and ports can begin in several zones, and no rule needs to
	// know the zone of their replies: if two connections would have equal replies, the kernel gives
	// the later one another source port, provided that a nat table has an entry.
	Direction Direction
}

// For returns the zone in which packets of one direction of a connection are looked up.
func (a SetZone) For(d Direction) uint16 {
	if a.Direction == AnyDirection || a.Direction == d {
		return a.Zone
	}
	return 0
}

// NoTrack takes the packet out of connection tracking and continues.
type NoTrack struct{}

// Log writes the packet's headers to the kernel's log and continues.
type Log struct {
	// Prefix precedes the headers: at most 29 bytes of the alphabet of reasons.
	Prefix string
}

// Reject discards the packet and notifies the sender: with a TCP reset or "port unreachable".
type Reject struct{}

// Jump continues in another chain of the same table, and after the rule when that chain returns.
// [ChainRef.Call] makes it, and keeps it within its table.
type Jump struct {
	// Chain is the target of the jump.
	Chain ChainName
}

// String returns "accept".
func (Accept) String() string { return "accept" }

// String returns "return".
func (Return) String() string { return "return" }

// String returns "drop".
func (Drop) String() string { return "drop" }

// String returns "reject".
func (Reject) String() string { return "reject" }

// String returns the action with its port, such as "redirect to :15001".
func (a RedirectTo) String() string { return fmt.Sprintf("redirect to :%d", a.Port) }

// String returns "dnat to 10.0.0.1:80", without the port when it is kept.
func (a DNATTo) String() string { return "dnat to " + endpoint(a.Addr, a.Port) }

// String returns "snat to 10.0.0.1:80", without the port when the kernel chooses it, or "keep
// source".
func (a SNATTo) String() string {
	if a.Keep {
		return "keep source"
	}
	return "snat to " + endpoint(a.Addr, a.Port)
}

// String returns the action with port and mark, such as "tproxy to :15006 mark 0x539".
func (a TProxyTo) String() string { return fmt.Sprintf("tproxy to :%d mark %s", a.Port, a.Mark) }

// String returns the action with the mark, such as "set mark 0x539".
func (a SetMark) String() string { return "set mark " + a.Mark.String() }

// String returns "save mark", with the mask unless it is whole.
func (a SaveMark) String() string { return "save mark" + maskText(a.Mask) }

// String returns "restore mark", with the mask unless it is whole.
func (a RestoreMark) String() string { return "restore mark" + maskText(a.Mask) }

// String returns the action with the mark, such as "set connmark 0x539".
func (a SetConnMark) String() string { return "set connmark " + a.Mark.String() }

// String returns the action with the zone's number, such as "zone 1", and the direction that it
// has: "zone 1 direction reply".
func (a SetZone) String() string {
	if a.Direction == AnyDirection {
		return fmt.Sprintf("zone %d", a.Zone)
	}
	return fmt.Sprintf("zone %d direction %s", a.Zone, a.Direction)
}

// String returns "notrack".
func (NoTrack) String() string { return "notrack" }

// String returns the action with its prefix, such as `log "prefix"`.
func (a Log) String() string { return fmt.Sprintf("log %q", a.Prefix) }

// String returns the action with the chain's name, such as "jump output".
func (a Jump) String() string { return "jump " + string(a.Chain) }

func maskText(mask Mark) string {
	if mask == 0 || mask == ^Mark(0) {
		return ""
	}
	return fmt.Sprintf("/0x%x", uint32(mask))
}

func endpoint(addr netip.Addr, port Port) string {
	if port == 0 {
		return addr.String()
	}
	return netip.AddrPortFrom(addr, uint16(port)).String()
}

func (Accept) action()      {}
func (Return) action()      {}
func (Drop) action()        {}
func (Reject) action()      {}
func (RedirectTo) action()  {}
func (DNATTo) action()      {}
func (SNATTo) action()      {}
func (TProxyTo) action()    {}
func (SetMark) action()     {}
func (SaveMark) action()    {}
func (RestoreMark) action() {}
func (SetConnMark) action() {}
func (SetZone) action()     {}
func (NoTrack) action()     {}
func (Log) action()         {}
func (Jump) action()        {}

func (Accept) raw()  {}
func (Return) raw()  {}
func (Drop) raw()    {}
func (SetZone) raw() {}
func (NoTrack) raw() {}
func (Log) raw()     {}
func (Jump) raw()    {}

func (Accept) mangle()      {}
func (Return) mangle()      {}
func (Drop) mangle()        {}
func (TProxyTo) mangle()    {}
func (SetMark) mangle()     {}
func (SaveMark) mangle()    {}
func (RestoreMark) mangle() {}
func (SetConnMark) mangle() {}
func (Log) mangle()         {}
func (Jump) mangle()        {}

func (Accept) nat()     {}
func (Return) nat()     {}
func (RedirectTo) nat() {}
func (DNATTo) nat()     {}
func (SNATTo) nat()     {}
func (Log) nat()        {}
func (Jump) nat()       {}

func (Accept) filter() {}
func (Return) filter() {}
func (Drop) filter()   {}
func (Reject) filter() {}
func (Log) filter()    {}
func (Jump) filter()   {}
