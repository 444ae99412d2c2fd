// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"net/netip"
)

// Action is what a rule does with the packets it matches. It is sealed: the actions of this package are all there are, and
// a switch over them can be complete. Which tables an action may stand in is part of its type ([RawAction], [MangleAction],
// [NATAction], [FilterAction]), so that DROP in a nat table does not compile.
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

// Accept ends the walk through this hook and table; the packet goes on to the next table.
type Accept struct{}

// Return ends the walk through this chain and goes on behind the jump that led here: in a chain that a hook leads to, with the
// hook's next entry.
type Return struct{}

// Drop discards the packet silently. It has no place in nat tables: iptables refuses it there, as only the first packet of a
// connection comes by.
type Drop struct{}

// RedirectTo sends the connection to a port of the namespace itself: to the address of the interface it came by or, in
// Output, to the loopback address. The original destination stays with the connection (SO_ORIGINAL_DST). It applies to TCP
// and UDP only and in the hooks Prerouting and Output only (iptables-extensions(8), REDIRECT).
type RedirectTo struct {
	// Port is the local port; it must not be 0.
	Port Port
}

// DNATTo sends the connection to another destination. It applies in Prerouting and Output.
type DNATTo struct {
	// Addr is the new destination, of the rule's family.
	Addr netip.Addr
	// Port is the new destination port; 0 keeps the old one. With a port the rule must match TCP or UDP.
	Port Port
}

// SNATTo makes the connection come from another source. It applies in Input and Postrouting.
type SNATTo struct {
	// Addr is the new source, of the rule's family.
	Addr netip.Addr
	// Port is the new source port; 0 leaves the choice to the kernel. With a port the rule must match TCP or UDP.
	Port Port
}

// TProxyTo hands the packet to a local socket that listens on Port with IP_TRANSPARENT, whatever the packet's destination, writes
// the packet's mark, by which policy routing then delivers it locally, and accepts it. It applies to TCP and UDP and in
// Prerouting only (Documentation/networking/tproxy.rst).
type TProxyTo struct {
	// Port is the local port; it must not be 0.
	Port Port
	// Mark is written to the packet.
	Mark MarkBits
}

// SetMark writes bits of the packet's mark, and goes on. In Output the kernel then routes the packet again.
type SetMark struct {
	// Mark is what is written.
	Mark MarkBits
}

// SaveMark copies bits of the packet's mark to its connection, and goes on.
type SaveMark struct {
	// Mask are the bits that are copied; 0 stands for all.
	Mask Mark
}

// RestoreMark copies bits of the connection's mark to the packet, and goes on. In Output the kernel then routes the packet again.
type RestoreMark struct {
	// Mask are the bits that are copied; 0 stands for all.
	Mask Mark
}

// SetConnMark writes bits of the connection's mark, and goes on.
type SetConnMark struct {
	// Mark is what is written.
	Mark MarkBits
}

// SetZone makes connection tracking look for the packet in a zone of its own, so that equal addresses and ports do not clash, and
// goes on (iptables-extensions(8), CT).
type SetZone struct {
	// Zone is the zone; 0 is the one that everything is in otherwise.
	Zone uint16
}

// NoTrack takes the packet out of connection tracking, and goes on.
type NoTrack struct{}

// Log writes the packet's headers to the kernel's log, and goes on.
type Log struct {
	// Prefix comes before them: at most 29 bytes of the alphabet of reasons.
	Prefix string
}

// Reject discards the packet and tells the sender: by a reset for TCP, otherwise by "port unreachable".
type Reject struct{}

// Jump continues in another chain of the same table, and behind the rule when that chain returns. It is made by
// [ChainRef.Call], which keeps it within its table.
type Jump struct {
	// Chain is the chain to continue in.
	Chain ChainName
}

// String is "accept".
func (Accept) String() string { return "accept" }

// String is "return".
func (Return) String() string { return "return" }

// String is "drop".
func (Drop) String() string { return "drop" }

// String is "reject".
func (Reject) String() string { return "reject" }

// String is "redirect to :15001" with the port's number.
func (a RedirectTo) String() string { return fmt.Sprintf("redirect to :%d", a.Port) }

// String is "dnat to 10.0.0.1:80", without the port when it is kept.
func (a DNATTo) String() string { return "dnat to " + endpoint(a.Addr, a.Port) }

// String is "snat to 10.0.0.1:80", without the port when it is free.
func (a SNATTo) String() string { return "snat to " + endpoint(a.Addr, a.Port) }

// String is "tproxy to :15006 mark 0x539" with port and mark.
func (a TProxyTo) String() string { return fmt.Sprintf("tproxy to :%d mark %s", a.Port, a.Mark) }

// String is "set mark 0x539" with the mark.
func (a SetMark) String() string { return "set mark " + a.Mark.String() }

// String is "save mark", with the mask when it is not whole.
func (a SaveMark) String() string { return "save mark" + maskText(a.Mask) }

// String is "restore mark", with the mask when it is not whole.
func (a RestoreMark) String() string { return "restore mark" + maskText(a.Mask) }

// String is "set connmark 0x539" with the mark.
func (a SetConnMark) String() string { return "set connmark " + a.Mark.String() }

// String is "zone 1" with the zone's number.
func (a SetZone) String() string { return fmt.Sprintf("zone %d", a.Zone) }

// String is "notrack".
func (NoTrack) String() string { return "notrack" }

// String is `log "prefix"`.
func (a Log) String() string { return fmt.Sprintf("log %q", a.Prefix) }

// String is "jump output" with the chain's name.
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
